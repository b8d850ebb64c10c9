import ArgumentParser

/// The options of all exports from a server: the destination, and the file with the state at which an export continues.
struct ServerExportOptions: ParsableArguments {
    @Option(help: .init("The file that keeps how far the export has come.", valueName: "file"))
    var after: String

    @Option(help: .init("The directory of the files, or - for standard output (default: .).", valueName: "directory"))
    var directory = "."

    @Option(help: .init("The size at which a file ends (default: 256MiB).", valueName: "size"))
    var maxBytes: String?

    @Option(help: .init("The age at which a file ends (default: 1h).", valueName: "time"))
    var every: String?

    @Flag(help: "Wait for what comes next (default: end at what there is).")
    var follow = false

    @Option(
        help: .init(
            "A file for Prometheus's textfile collector that says how far the export is behind (default: none).",
            valueName: "file"))
    var metricsFile: String?

    @OptionGroup var server: ServerOptions

    /// Exports some kinds of records, and follows further changes if the options say so.
    func run(_ kinds: [ExportKind]) throws {
        let settings = Settings(environment: [:])
        var size = ByteCount(bytes: 256 * ByteCount.MiB)
        var time = Period(seconds: 3_600)
        try settings.apply(maxBytes, "max-bytes", in: 1...ByteCount.TiB, to: &size)
        try settings.apply(every, "every", in: Period(seconds: 1)...Period.longest, to: &time)
        let files = try ExportFiles(
            kinds, statePath: after, directory: directory == "-" ? nil : directory, maximumBytes: size.bytes,
            seconds: time.seconds)
        let metrics = metricsFile.map { ExportMetrics(path: $0, kinds, follows: follow) }
        var export = ServerExport(try server.client(), into: files, follows: follow, metrics: metrics)
        try export.run()
    }
}

/// Writes assignments and overrides.
struct ExportAssignmentsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "assignments", abstract: "Writes assignments and overrides of a server to files.")

    @OptionGroup var options: ServerExportOptions

    func run() throws { try options.run([.assignments]) }
}

/// Writes exposures.
struct ExportExposuresCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "exposures", abstract: "Writes exposures of a server to files.")

    @OptionGroup var options: ServerExportOptions

    func run() throws { try options.run([.exposures]) }
}

/// Writes goal events.
struct ExportEventsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "events", abstract: "Writes goal events of a server to files.")

    @OptionGroup var options: ServerExportOptions

    func run() throws { try options.run([.events]) }
}

/// Writes the audit log.
struct ExportAuditCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "audit", abstract: "Writes the audit log of a server to files.")

    @OptionGroup var options: ServerExportOptions

    func run() throws { try options.run([.audit]) }
}

/// Writes all kinds, each to files of its own.
struct ExportAllCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "all",
        abstract: "Writes assignments, exposures, events and the audit log of a server to files.")

    @OptionGroup var options: ServerExportOptions

    func run() throws { try options.run(ExportKind.allCases) }
}
