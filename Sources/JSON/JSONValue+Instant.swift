package import Chronology

/// Times as they are stored in JSON: milliseconds since 1970.
extension JSONValue {
    package static func instant(_ time: Instant) -> JSONValue { .integer(time.milliseconds) }
    package var instant: Instant? { integer.map { Instant(milliseconds: $0) } }
}
