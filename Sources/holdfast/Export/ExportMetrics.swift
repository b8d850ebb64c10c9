/// A file for the textfile collector of Prometheus's node exporter, with the lag of an export behind its server.
struct ExportMetrics {
    private let path: String
    /// The labels of the metric, in the text format of Prometheus.
    private let labels: String
    /// The last failure that was reported.
    private var reportedFailure = ""

    /// - Parameter follows: whether the export follows the feed, and should therefore never be far behind.
    init(path: String, _ kinds: [ExportKind], follows: Bool) {
        self.path = path
        let names = kinds.count == ExportKind.allCases.count ? "all" : kinds.map(\.rawValue).joined(separator: ",")
        labels = #"kinds="\#(names)",mode="\#(follows ? "follow" : "once")""#
    }

    /// Replaces the file. A failure does not end the export: it is reported once, and then an alert on the age of the
    /// metric's value shows it.
    ///
    /// - Parameter seconds: the time in seconds since 1970 before which all commits are in the files.
    mutating func write(completeTo seconds: Double) {
        let name = "holdfast_export_complete_timestamp_seconds"
        let text = """
            # HELP \(name) Everything that was committed before this time is in the files of the export.
            # TYPE \(name) gauge
            \(name){\(labels)} \(Int(seconds))

            """
        do {
            try OpenFile.write(text, to: path)
            reportedFailure = ""
        } catch {
            let reason = "\(error)"
            if reason != reportedFailure { OpenFile.printError("\(reason); the export goes on\n") }
            reportedFailure = reason
        }
    }
}
