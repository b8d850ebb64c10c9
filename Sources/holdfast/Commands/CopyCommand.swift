import ArgumentParser
import Dispatch
import FoundationEssentials
import Glibc
import Storage

/// Copies one database to another. Each is a SQLite file or a PostgreSQL database.
struct CopyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "copy",
        abstract: "Copies one database to another, and compares the two.",
        discussion: """
            The target must be empty, or hold a copy that no server has used yet: an interrupted copy is continued, and an \
            outdated one is updated. The exit status is 1 unless both are equal in the end. \
            'holdfast manual MoveFromSQLite' has the steps of a move.
            """)

    @Option(help: .init("The database to copy: a SQLite file, or postgresql://….", valueName: "database"))
    var from: String?

    @Option(help: .init("The copy: a SQLite file, or postgresql://….", valueName: "database"))
    var to: String?

    func run() throws {
        let settings = Settings(environment: ProcessInfo.processInfo.environment)
        let source = try location(from, "from", settings)
        let target = try location(to, "to", settings)
        let (reader, writer) = try StoreFactory.copy(from: source, to: target)
        let progress = CopiedRows()
        let copy = StoreCopy(from: reader, to: writer) { phase, table, rows in
            progress.report(phase, table, rows)
        }
        let (written, comparisons) = try copy.run()
        progress.finish()
        for comparison in comparisons { print(line(comparison)) }
        guard comparisons.allSatisfy(\.isEqual) else {
            throw Failure(
                "both databases must be equal; they differ, because \(source) has changed during the copy: run its "
                    + "servers with --read-only, and run the same command again")
        }
        print("copied \(source) to \(target): both are equal, \(written) rows were written")
    }

    /// Returns the database of an option, or of its environment variable.
    private func location(_ option: String?, _ name: String, _ settings: Settings) throws -> DatabaseLocation {
        var location = DatabaseLocation("")
        try DatabaseOptions.apply(option, name, settings, to: &location)
        guard !location.text.isEmpty else { throw Failure("--\(name) must name a database; there is none") }
        return location
    }

    /// Describes the comparison of a table: its name, and the number and the checksum of its rows. If the databases
    /// differ, the line has the number and the checksum of both.
    ///
    /// The columns are wide enough for the longest name of a table, for 10 digits, and for 64 bits in hexadecimal.
    private func line(_ comparison: StoreCopy.Comparison) -> String {
        let name = comparison.table.rawValue.padded(to: 18)
        let sides = comparison.isEqual ? [comparison.source] : [comparison.source, comparison.target]
        let texts = sides.map { side in
            let rows = String(side.rows)
            let checksum = String(side.value, radix: 16)
            return String(repeating: " ", count: max(0, 10 - rows.count)) + rows + "  "
                + String(repeating: "0", count: 16 - checksum.count) + checksum
        }
        return name + texts.joined(separator: " but") + (comparison.isEqual ? "  equal" : "  DIFFERENT")
    }
}

/// Shows the progress of ``CopyCommand`` on standard error: each second on a terminal, elsewhere every ten seconds.
private final class CopiedRows {
    private let isTerminal = isatty(STDERR_FILENO) == 1
    /// When the progress was shown last; at first, when the copy began.
    private var shownAt = DispatchTime.now()

    /// Shows the number of rows of a table so far, unless the progress was shown a moment ago.
    func report(_ phase: StoreCopy.Phase, _ table: StoredTable, _ rows: Int) {
        let now = DispatchTime.now()
        guard now >= shownAt + .seconds(isTerminal ? 1 : 10) else { return }
        shownAt = now
        let verb = phase == .copying ? "copied" : "compared"
        // On a terminal the next text overwrites this one. The escape sequence erases the rest of a longer line.
        show("\(verb) \(rows) rows of \(table.rawValue)" + (isTerminal ? "\u{1B}[K\r" : "\n"))
    }

    func finish() {
        if isTerminal { show("\u{1B}[K") }
    }

    private func show(_ text: String) {
        OpenFile.printError(text)
    }
}
