import FoundationEssentials
import Glibc
import HoldfastCore
import Logging
internal import Synchronization

/// Writes log lines to standard error: one JSON object per line for machines, or text for a person at a terminal.
struct LineLogHandler: LogHandler {
    /// The form of a line.
    enum Form: Sendable {
        case json, text
    }

    var metadata: Logger.Metadata = [:]
    var logLevel: Logger.Level
    private let form: Form

    init(form: Form, level: Logger.Level) {
        self.form = form
        logLevel = level
    }

    /// Returns a logger with this format; `auto` is text when standard error is a terminal.
    static func makeLogger(_ format: LogFormat, level: Logger.Level) -> Logger {
        let form: Form =
            switch format {
            case .json: .json
            case .text: .text
            case .auto: isatty(STDERR_FILENO) == 1 ? .text : .json
            }
        return Logger(label: "holdfast") { _ in LineLogHandler(form: form, level: level) }
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    /// Standard error, under a lock so that lines of several threads do not mix.
    private static let output = Mutex(LogOutput(descriptor: STDERR_FILENO))

    func log(event: LogEvent) {
        let metadata = metadata.merging(event.metadata ?? [:]) { _, new in new }
        let line = line(event.level, event.message, metadata)
        Self.output.withLock { output in
            output.write(line) { dropped in
                self.line(
                    .warning, "lines of the log were dropped, because nothing read it",
                    ["lines": .stringConvertible(dropped)])
            }
        }
    }

    /// Returns a line in the form of this handler.
    private func line(_ level: Logger.Level, _ message: Logger.Message, _ metadata: Logger.Metadata) -> String {
        let time = Date().formatted(
            .iso8601.year().month().day().timeZone(separator: .omitted).time(includingFractionalSeconds: true))
        return switch form {
        case .json: Self.json(time, level, message, metadata)
        case .text: Self.text(time, level, message, metadata)
        }
    }

    /// Returns a line as a JSON object.
    private static func json(
        _ time: String, _ level: Logger.Level, _ message: Logger.Message, _ metadata: Logger.Metadata
    ) -> String {
        var members = [("time", quoted(time)), ("level", quoted(level.rawValue)), ("message", quoted("\(message)"))]
        members += metadata.sorted { $0.key < $1.key }.map { ($0.key, json($0.value)) }
        return "{" + members.map { name, value in quoted(name) + ":" + value }.joined(separator: ",") + "}"
    }

    /// Returns a value as JSON. Numbers stay numbers, so that tools can compare and add them; everything else becomes
    /// text.
    private static func json(_ value: Logger.Metadata.Value) -> String {
        switch value {
        case .stringConvertible(let number as any BinaryInteger): "\(number)"
        case .stringConvertible(let number as Double) where number.isFinite: "\(number)"
        default: quoted("\(value)")
        }
    }

    /// Returns a text as a JSON string.
    private static func quoted(_ text: String) -> String {
        var result = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"": result += "\\\""
            case "\\": result += "\\\\"
            case "\n": result += "\\n"
            case "\r": result += "\\r"
            case "\t": result += "\\t"
            case _ where scalar.value < 0x20:
                result += "\\u00" + (scalar.value < 16 ? "0" : "") + String(scalar.value, radix: 16)
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result + "\""
    }

    /// Returns a line as text: the time, the level, the message, and the metadata as `key=value`.
    private static func text(
        _ time: String, _ level: Logger.Level, _ message: Logger.Message, _ metadata: Logger.Metadata
    ) -> String {
        let details = metadata.sorted { $0.key < $1.key }.map { " \($0.key)=\($0.value)" }.joined()
        return "\(time) \(level.rawValue) \(message)\(details)"
    }
}
