/// Runs a program of the system to its end.
func run(_ name: String, _ arguments: String...) throws {
    guard let path = Executable.find(name) else { throw TestFailure("there is no program \(name)") }
    try runAt(path, arguments)
}

/// Runs the program of this path to its end.
///
/// - Returns: what it wrote to its standard output.
@discardableResult
func runAt(_ path: String, _ arguments: [String]) throws -> String {
    let child = try ChildProcess(path, arguments)
    let end = child.wait()
    guard end == .exit(0) else { throw TestFailure("\(path) ended with \(end): \(child.errors.text)") }
    return child.output.text
}
