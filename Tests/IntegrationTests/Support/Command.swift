/// One run of `holdfast` to its end.
struct Command {
    let end: ChildProcess.End
    let output: String
    let errors: String

    init(_ arguments: String..., environment: [String: String] = [:], input: String = "/dev/null") throws {
        let child = try ChildProcess(Executable.holdfast, arguments, environment: environment, input: input)
        end = child.wait()
        output = child.output.text
        errors = child.errors.text
    }
}
