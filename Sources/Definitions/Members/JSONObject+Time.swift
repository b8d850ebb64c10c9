public import Chronology
public import JSON

extension JSONObject {
    /// Returns a member with an RFC 3339 time; `nil` if it is absent or null.
    public func optionalTime(_ name: String, in place: JSONPointer = []) throws(CoreError) -> Instant? {
        guard let text = try optionalText(name, in: place) else { return nil }
        guard let time = Instant(rfc3339: text) else {
            throw CoreError(
                .invalid, "`\(name)` must be a time such as 2026-01-31T12:00:00.000Z (RFC 3339); got '\(text)'",
                at: place.appending(name))
        }
        return time
    }

    /// Returns a stored RFC 3339 time; `nil` if it is absent or invalid.
    func time(_ key: String) -> Instant? { self[key]?.string.flatMap { Instant(rfc3339: $0) } }
}
