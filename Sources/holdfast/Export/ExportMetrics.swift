/// A file for the textfile collector of Prometheus's node exporter, which says how far an export is behind its server.
struct ExportMetrics {
    private let path: String
    private let labels: String
    /// Why the last attempt failed.
    private var told = ""

    /// - Parameter follows: whether the export waits for what comes next, and so should never be far behind.
    init(path: String, _ kinds: [ExportKind], follows: Bool) {
        self.path = path
        let names = kinds.count == ExportKind.allCases.count ? "all" : kinds.map(\.rawValue).joined(separator: ",")
        labels = #"kinds="\#(names)",mode="\#(follows ? "follow" : "once")""#
    }

    /// Replaces the file. A failure does not end the export: it is told once, and the alert on the age of the value fires.
    ///
    /// - Parameter seconds: everything that was committed before this time is in the files; since 1970.
    mutating func write(completeTo seconds: Double) {
        let name = "holdfast_export_complete_timestamp_seconds"
        let text = """
            # HELP \(name) Everything that was committed before this time is in the files of the export.
            # TYPE \(name) gauge
            \(name){\(labels)} \(Int(seconds))

            """
        do {
            try OpenFile.write(text, to: path)
            told = ""
        } catch {
            let reason = "\(error)"
            if reason != told { OpenFile.printError("\(reason); the export goes on\n") }
            told = reason
        }
    }
}
