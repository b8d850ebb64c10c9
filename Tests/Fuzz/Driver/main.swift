import Glibc

// One target under libFuzzer: `holdfast-fuzz TARGET [libFuzzer's options and corpus directories]`. See Tests/Fuzz/run.

@_silgen_name("LLVMFuzzerRunDriver")
private func runFuzzer(
    _ argumentCount: UnsafeMutablePointer<Int32>,
    _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>>,
    _ check: @convention(c) (UnsafePointer<UInt8>?, Int) -> Int32
) -> Int32

nonisolated(unsafe) private var target = FuzzTarget.json

guard CommandLine.arguments.count > 1, let named = FuzzTarget.all.first(where: { $0.name == CommandLine.arguments[1] })
else {
    print("usage: holdfast-fuzz TARGET [options]; targets: \(FuzzTarget.all.map(\.name).joined(separator: " "))")
    exit(2)
}
target = named

var argumentCount = CommandLine.argc - 1
var arguments = CommandLine.unsafeArgv + 1
exit(
    runFuzzer(&argumentCount, &arguments) { bytes, count in
        do {
            try target.check(Array(UnsafeBufferPointer(start: bytes, count: count)))
        } catch {
            print("finding: \(error)")
            fflush(nil)
            abort()
        }
        return 0
    })
