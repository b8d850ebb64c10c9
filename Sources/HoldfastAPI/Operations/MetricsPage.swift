import Storage

/// Writes metrics in the text format of Prometheus 0.0.4. A metric begins with its name, kind and help. Its samples
/// follow.
struct MetricsPage {
    /// The type of a metric.
    enum Kind: String {
        case counter, gauge, histogram
    }

    private(set) var text = ""
    /// The name of the metric that was begun last.
    private var name = ""

    /// Begins a metric.
    ///
    /// - Parameter help: one line that explains the metric to operators.
    mutating func begin(_ name: String, _ kind: Kind, _ help: String) {
        self.name = name
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(kind.rawValue)\n"
    }

    /// Writes a sample of the metric that was begun last.
    ///
    /// - Parameter labels: such as `source="stored"`, with escaped values.
    mutating func sample(_ labels: String, _ value: some CustomStringConvertible) {
        text += "\(name){\(labels)} \(value)\n"
    }

    /// Escapes the value of a label.
    static func escaped(_ value: String) -> String {
        value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\n", with: "\\n")
    }

    /// Writes a metric with one sample, without labels.
    mutating func single(_ name: String, _ kind: Kind, _ help: String, _ value: some CustomStringConvertible) {
        begin(name, kind, help)
        text += "\(name) \(value)\n"
    }

    /// Writes a histogram of the metric that was begun last. Its buckets are cumulative.
    ///
    /// - Parameters:
    ///   - bounds: the upper bounds of the buckets, in ascending order.
    ///   - counts: the number of observations in each bucket, and at the end the number beyond the last bound.
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

    /// Writes a metric with one histogram, without labels.
    mutating func histogram(_ name: String, _ help: String, _ histogram: Histogram) {
        begin(name, .histogram, help)
        let beyond = histogram.count &- histogram.counts.reduce(0, &+)
        self.histogram("", bounds: histogram.bounds, counts: histogram.counts + [beyond], sum: histogram.sum)
    }
}
