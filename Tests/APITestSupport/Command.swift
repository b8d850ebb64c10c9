package import ProcessTestSupport

/// One run of `holdfast` to its end.
package struct Command {
    package let end: ChildProcess.End
    package let output: String
    package let errors: String

    package init(_ arguments: String..., environment: [String: String] = [:], input: String = "/dev/null") throws {
        try self.init(arguments, environment: environment, input: input)
    }

    package init(_ arguments: [String], environment: [String: String] = [:], input: String = "/dev/null") throws {
        let child = try ChildProcess(Executable.holdfast, arguments, environment: environment, input: input)
        end = child.wait()
        output = child.output.text
        errors = child.errors.text
    }
}

/// Runs a program from the `PATH` to its end.
package func run(_ name: String, _ arguments: String...) throws {
    guard let path = Executable.find(name) else { throw TestFailure("there is no program \(name)") }
    try runAt(path, arguments)
}

/// Runs the program at this path to its end.
///
/// - Returns: its standard output.
@discardableResult
package func runAt(_ path: String, _ arguments: [String], environment: [String: String] = [:]) throws -> String {
    let child = try ChildProcess(path, arguments, environment: environment)
    let end = child.wait()
    guard end == .exit(0) else { throw TestFailure("\(path) ended with \(end): \(child.errors.text)") }
    return child.output.text
}
