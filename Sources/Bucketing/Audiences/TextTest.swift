import JSON

/// A test on a text that SDKs do not know: `starts_with`, `ends_with`, `matches` (a ``RegularExpression``), or any test
/// that ignores case. Only segments may have such tests, because the server alone evaluates segments.
public struct TextTest: Sendable {
    private enum Relation: Sendable {
        case equal
        case contains
        case beginning
        case end
        case pattern(RegularExpression)
    }

    /// The values of `match` that only segments may have.
    package static let matches = ["starts_with", "ends_with", "matches"]
    /// The values of `match` that `ignore_case` may accompany.
    package static let matchesIgnoringCase = ["exact", "in", "not_in", "substring"] + matches

    /// The `match` of the condition.
    package let match: String
    /// The `value` of the condition.
    package let value: String
    package let ignoresCase: Bool
    private let relation: Relation
    /// The text to find; in lower case if case is ignored.
    private let sought: String

    /// - Returns: `nil` if `match` is another test, which SDKs know, or is no test at all.
    /// - Throws: ``RegularExpressionError`` if the value of `matches` is not a valid pattern.
    package init?(match: String, value: String, ignoresCase: Bool) throws(RegularExpressionError) {
        switch match {
        case "exact" where ignoresCase: relation = .equal
        case "substring" where ignoresCase: relation = .contains
        case "starts_with": relation = .beginning
        case "ends_with": relation = .end
        case "matches": relation = .pattern(try RegularExpression(value, ignoresCase: ignoresCase))
        default: return nil
        }
        self.match = match
        self.value = value
        self.ignoresCase = ignoresCase
        sought = ignoresCase ? value.lowercased() : value
    }

    /// Tests a text.
    ///
    /// - Parameter text: valid UTF-8.
    /// - Returns: `nil` (unknown) if the text is too long for a pattern.
    public func holds(_ text: UnsafeRawBufferPointer) -> Bool? {
        if case .pattern(let pattern) = relation { return pattern.matches(text) }
        guard ignoresCase else { return compare(text) }
        var lowered = String(decoding: text, as: UTF8.self).lowercased()
        return lowered.withUTF8 { compare(UnsafeRawBufferPointer($0)) }
    }

    /// Compares a text, in lower case if case is ignored, with ``sought``.
    private func compare(_ text: UnsafeRawBufferPointer) -> Bool {
        var sought = sought
        return sought.withUTF8 { sought in
            switch relation {
            case .equal, .pattern: text.elementsEqual(sought)
            case .contains: text.containsBytes(of: UnsafeRawBufferPointer(sought))
            case .beginning: text.starts(with: sought)
            case .end: text.count >= sought.count && text.suffix(sought.count).elementsEqual(sought)
            }
        }
    }
}
