import Foundation

/// Receives the client's log messages; see ``HoldfastConfiguration/logger``.
///
/// With swift-log:
///
/// ```swift
/// let logger = Logger(label: "holdfast")
/// configuration.logger = { level, message, metadata in
///     logger.log(
///         level: Logger.Level(rawValue: level.rawValue) ?? .info, "\(message)",
///         metadata: metadata.mapValues { .string($0) })
/// }
/// ```
public typealias HoldfastLogger =
    @Sendable (_ level: HoldfastLogLevel, _ message: String, _ metadata: [String: String]) -> Void

/// The severity of a log message, with the names of swift-log.
public enum HoldfastLogLevel: String, Sendable, CaseIterable {
    case trace, debug, info, notice, warning, error, critical
}

extension DeliveryNotice {
    /// Logs the outcome of an event.
    func log(to logger: HoldfastLogger) {
        var kind = ["kind": "\(event.kind)"]
        if case .attributes(let update) = event { kind["names"] = update.names.joined(separator: ", ") }
        switch outcome {
        case .delivered: logger(.debug, "event delivered", kind)
        case .refused(let reason):
            logger(.error, "event refused by the server", kind.merging(["reason": "\(reason)"]) { $1 })
        case .dropped(let reason): logger(.error, "event dropped", kind.merging(["reason": "\(reason)"]) { $1 })
        case .postponed(let error):
            logger(.notice, "event postponed", kind.merging(["error": error.localizedDescription]) { $1 })
        }
    }
}
