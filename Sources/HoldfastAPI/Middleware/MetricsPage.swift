import Storage

/// Writes metrics in the text format of Prometheus.
struct MetricsPage {
    enum Kind: String {
        case counter, gauge, histogram
    }

    private(set) var text = ""
    private var name = ""

    mutating func begin(_ name: String, _ kind: Kind, _ help: String) {
        self.name = name
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(kind.rawValue)\n"
    }

    mutating func sample(_ labels: String, _ value: some CustomStringConvertible) {
        text += "\(name){\(labels)} \(value)\n"
    }

    mutating func single(_ name: String, _ kind: Kind, _ help: String, _ value: some CustomStringConvertible) {
        begin(name, kind, help)
        text += "\(name) \(value)\n"
    }

    /// - Parameter counts: observations in each bucket, and one more count for those beyond the last bound.
    mutating func histogram(_ labels: String, bounds: [Double], counts: [UInt64], sum: Double) {
        let separator = labels.isEmpty ? "" : ","
        var total: UInt64 = 0
        for (bound, count) in zip(bounds, counts) {
            total &+= count
            text += "\(name)_bucket{\(labels)\(separator)le=\"\(bound)\"} \(total)\n"
        }
        total = counts.reduce(0, &+)
        let braces = labels.isEmpty ? "" : "{\(labels)}"
        text += "\(name)_bucket{\(labels)\(separator)le=\"+Inf\"} \(total)\n"
        text += "\(name)_sum\(braces) \(sum)\n\(name)_count\(braces) \(total)\n"
    }

    mutating func histogram(_ name: String, _ help: String, _ histogram: Histogram) {
        begin(name, .histogram, help)
        let beyond = histogram.count &- histogram.counts.reduce(0, &+)
        self.histogram("", bounds: histogram.bounds, counts: histogram.counts + [beyond], sum: histogram.sum)
    }
}
