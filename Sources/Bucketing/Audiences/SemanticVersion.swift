import JSON

/// A version such as `2.1.0-beta`, as audience conditions compare it.
///
/// Less strict than semver.org: `2.1` and `3.7.1-rc.1+x` are both valid. Follows
/// `compare_user_version_with_target_version` of Optimizely's Python SDK: parts are compared one by one, a target with
/// fewer parts equals all versions that begin with those (`2.1.5` equals the target `2.1`), and a pre-release (`-`)
/// precedes its release.
public struct SemanticVersion: Sendable {
    /// Up to three numbers, then everything after the first `-` or `+` as one part.
    private let parts: [Part]
    private let isPreRelease: Bool
    private let isBuild: Bool

    private struct Part: Sendable {
        let text: String
        /// The digits without leading zeros, so that numbers of any length can be compared; `nil` if the text is not a
        /// number.
        let number: String?

        init(_ text: String) {
            self.text = text
            number = Self.number(text)
        }

        /// Accepts decimal digits of all scripts, like Python's `int`.
        private static func number(_ text: String) -> String? {
            guard !text.isEmpty else { return nil }
            let isPlain = text.utf8.allSatisfy { $0 &- UInt8(ascii: "0") < 10 }
            if isPlain { return String(Substring(text.utf8.drop { $0 == UInt8(ascii: "0") })) }
            var digits = ""
            for scalar in text.unicodeScalars {
                guard scalar.properties.numericType == .decimal, let value = scalar.properties.numericValue else {
                    return nil
                }
                if digits != "" || value != 0 { digits += String(Int(value)) }
            }
            return digits
        }
    }

    /// The version as it was parsed.
    var text: String {
        guard isPreRelease || isBuild, let suffix = parts.last else {
            return parts.map(\.text).joined(separator: ".")
        }
        return parts.dropLast().map(\.text).joined(separator: ".") + (isPreRelease ? "-" : "+") + suffix.text
    }

    public init?(_ text: String) {
        let bytes = text.utf8
        guard !bytes.contains(UInt8(ascii: " ")) else { return nil }
        let suffixStart = bytes.firstIndex { $0 == UInt8(ascii: "-") || $0 == UInt8(ascii: "+") }
        isPreRelease = suffixStart.map { bytes[$0] == UInt8(ascii: "-") } ?? false
        isBuild = suffixStart != nil && !isPreRelease
        // Splits off at most a fourth part, which is enough to see that there are too many.
        let prefix = bytes[..<(suffixStart ?? bytes.endIndex)]
            .split(separator: UInt8(ascii: "."), maxSplits: 3, omittingEmptySubsequences: false)
        guard prefix.count <= 3 else { return nil }
        var parts = prefix.map { Part(String(Substring($0))) }
        guard parts.allSatisfy({ $0.number != nil }) else { return nil }
        if let suffixStart {
            parts.append(Part(String(text[bytes.index(after: suffixStart)...])))
        }
        self.parts = parts
    }

    /// Compares a user's version with the target of a condition: negative if it is lower, 0 if equal, positive if
    /// higher.
    ///
    /// - Returns: `nil` if a number would have to be compared with a text.
    public func compared(toTarget target: SemanticVersion) -> Int? {
        for (index, targetPart) in target.parts.enumerated() {
            guard index < parts.count else {
                // The target has further parts. Further numbers make the target higher, and a suffix makes it lower.
                return target.isPreRelease || target.isBuild ? 1 : -1
            }
            let part = parts[index]
            // A part that is not a number is a suffix. If only one of the two is a pre-release, that one is lower,
            // whatever the texts of the suffixes are. Otherwise they are compared byte by byte.
            if let number = part.number {
                guard let targetNumber = targetPart.number else { return nil }
                let order = Self.order(of: number, targetNumber)
                if order != 0 { return order }
            } else if Identifier(part.text) < Identifier(targetPart.text) {
                return target.isPreRelease && !isPreRelease ? 1 : -1
            } else if !part.text.hasSameBytes(as: targetPart.text) {
                return !target.isPreRelease && isPreRelease ? -1 : 1
            }
        }
        // All parts of the target are equal.
        return isPreRelease && !target.isPreRelease ? -1 : 0
    }

    /// Compares two numbers: without leading zeros, the longer one is greater.
    private static func order(of left: String, _ right: String) -> Int {
        if left.utf8.count != right.utf8.count {
            return left.utf8.count < right.utf8.count ? -1 : 1
        }
        if left == right { return 0 }
        return left < right ? -1 : 1
    }
}
