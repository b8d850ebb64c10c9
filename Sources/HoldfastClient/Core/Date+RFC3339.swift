import Foundation

extension Date {
    /// In UTC with milliseconds, such as `2026-01-31T12:00:00.000Z`.
    var rfc3339: String {
        formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))
    }
}
