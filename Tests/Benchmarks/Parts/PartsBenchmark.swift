import Glibc

/// Measures the parts of a request one by one. `Tests/Benchmarks/parts` runs it, also below valgrind, which counts
/// instructions and allocations where time says little.
///
/// - No arguments: prints name and nanoseconds of one operation, the best of several rounds, of every part.
/// - `--part NAME --count N`: runs one part N times and prints nothing.
@main struct PartsBenchmark {
    static func main() throws {
        let arguments = Array(CommandLine.arguments.dropFirst())
        switch arguments.count {
        case 0:
            for group in groups {
                for part in try group() { print("\(part.name)\t\(part.nanoseconds())") }
            }
        case 4 where arguments[0] == "--part" && arguments[2] == "--count":
            guard let part = try part(named: arguments[1]), let count = Int(arguments[3]) else { exit(64) }
            part.run(count)
        default:
            exit(64)
        }
    }

    /// Prepares no group behind the one sought, so that what is counted of it is the same in every run; SQLite's, in
    /// whose preparation several threads take part, is the last.
    private static func part(named name: String) throws -> Part? {
        for group in groups {
            if let part = try group().first(where: { $0.name == name }) { return part }
        }
        return nil
    }

    #if TESTABLE_MODULES || DEBUG
        private static let groups = [bucketingParts, recordParts, serverParts, memoryParts, sqliteParts]
    #else
        private static let groups = [bucketingParts, recordParts, memoryParts, sqliteParts]
    #endif
}
