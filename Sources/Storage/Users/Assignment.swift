public import Bucketing
public import Chronology

/// A user's variation in one experiment, and where it came from.
public struct Assignment: Hashable, Sendable {
    public enum Source: UInt8, Sendable, CaseIterable {
        /// Saved by an app server.
        case saved = 1
        /// Decided by this server.
        case bucketed = 2
        /// Set by an admin. It covers the underlying assignment until it expires or an admin removes it.
        case override = 3
        /// Taken over from the user's anonymous profile; see ``TakeoverRules``.
        case merged = 4

        /// The name in the API and in the audit log.
        public var name: String {
            switch self {
            case .saved: "saved"
            case .bucketed: "bucketed"
            case .override: "override"
            case .merged: "merged"
            }
        }
    }

    public var variationID: Identifier
    public let source: Source
    /// When the user first got this variation.
    public var assignedAt: Instant
    /// When the assignment was last saved.
    public var updatedAt: Instant
    /// When the assignment expires: the first moment at which it is gone. `nil` means never.
    public var expiresAt: Instant?
    /// The additional properties of an override; `nil` for any other source.
    public let layer: OverrideLayer?

    /// - Parameter layer: ignored unless the source is ``Source/override``.
    public init(
        variationID: Identifier, source: Source, assignedAt: Instant, updatedAt: Instant, expiresAt: Instant?,
        layer: OverrideLayer? = nil
    ) {
        self.variationID = variationID
        self.source = source
        self.assignedAt = assignedAt
        self.updatedAt = updatedAt
        self.expiresAt = expiresAt
        self.layer = source == .override ? layer : nil
    }
}

/// The additional properties of an override. A class, so that the many assignments without one stay small.
public final class OverrideLayer: Sendable {
    /// The name of the admin who set the override.
    public let author: String?
    public let reason: String?
    /// The assignment that the override covers. Saves still update it, and it counts again when the override ends.
    public let beneath: Assignment?

    /// The maximum length of a reason in bytes.
    public static let reasonLimit = 255

    /// - Returns: `nil` if all properties are `nil`.
    public init?(author: String?, reason: String?, beneath: Assignment?) {
        guard author != nil || reason != nil || beneath != nil else { return nil }
        self.author = author
        self.reason = reason
        self.beneath = beneath
    }
}

extension OverrideLayer: Hashable {
    public static func == (left: OverrideLayer, right: OverrideLayer) -> Bool {
        left.author == right.author && left.reason == right.reason && left.beneath == right.beneath
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(author)
        hasher.combine(reason)
        hasher.combine(beneath)
    }
}

extension Assignment {
    /// The underlying assignment of an override, or else the assignment itself.
    public var withoutOverride: Assignment? { source == .override ? layer?.beneath : self }

    /// Returns the override over another assignment.
    func covering(_ beneath: Assignment?) -> Assignment {
        Assignment(
            variationID: variationID, source: source, assignedAt: assignedAt, updatedAt: updatedAt,
            expiresAt: expiresAt, layer: OverrideLayer(author: layer?.author, reason: layer?.reason, beneath: beneath))
    }

    /// Returns the assignment that counts at a time, without an expired override and without an expired underlying
    /// assignment; `nil` if nothing is left.
    func visible(at now: Instant) -> Assignment? {
        let isPresent = expiresAt.map { $0 > now } ?? true
        guard let beneath = layer?.beneath else { return isPresent ? self : nil }
        let rest = beneath.visible(at: now)
        guard isPresent else { return rest }
        return rest == nil ? covering(nil) : self
    }

    /// When the assignment or the underlying one expires, whichever is first.
    var earliestExpiry: Instant? {
        guard let beneath = layer?.beneath?.expiresAt else { return expiresAt }
        return expiresAt.map { min($0, beneath) } ?? beneath
    }
}

/// The experiment bucket map of a profile: a variation for each experiment, without metadata.
public struct ExperimentBucketMap: Sendable, Hashable {
    public struct Entry: Sendable, Hashable {
        public let experimentID: Identifier
        public let variationID: Identifier

        public init(experimentID: Identifier, variationID: Identifier) {
            self.experimentID = experimentID
            self.variationID = variationID
        }
    }

    /// One entry per experiment, in the byte order of experiment ids.
    public let entries: [Entry]

    public static let empty = ExperimentBucketMap(checked: [])

    /// - Parameter entries: in any order. The last of several for one experiment wins.
    public init(_ entries: [Entry]) {
        if Self.isAscending(entries) {
            self.entries = entries
            return
        }
        let sorted = Self.sorted(entries)
        if Self.isAscending(sorted) {
            self.entries = sorted
            return
        }
        let last = Dictionary(entries.map { ($0.experimentID, $0) }, uniquingKeysWith: { $1 })
        self.entries = last.values.sorted { $0.experimentID < $1.experimentID }
    }

    private init(checked entries: [Entry]) {
        self.entries = entries
    }

    /// Sorts by the 16 bytes after the common prefix of all ids, compared as numbers, and by the whole ids only if
    /// these are equal: comparing texts takes many times as long.
    private static func sorted(_ entries: [Entry]) -> [Entry] {
        let start = commonPrefixLength(entries)
        let keys = entries.enumerated().map { (key: sortKey($1.experimentID, from: start), index: $0) }
        return keys.sorted { left, right in
            if left.key != right.key { return left.key < right.key }
            return entries[left.index].experimentID < entries[right.index].experimentID
        }.map { entries[$0.index] }
    }

    private static func commonPrefixLength(_ entries: [Entry]) -> Int {
        let first = Array(entries.first?.experimentID.string.utf8 ?? "".utf8)
        var length = first.count
        for entry in entries {
            var text = entry.experimentID.string
            length = text.withUTF8 { bytes in
                let most = min(length, bytes.count)
                return (0..<most).first { bytes[$0] != first[$0] } ?? most
            }
        }
        return length
    }

    /// 16 bytes of an id; a shorter one is padded with zeros.
    private static func sortKey(_ experimentID: Identifier, from start: Int) -> (UInt64, UInt64) {
        var (high, low): (UInt64, UInt64) = (0, 0)
        var text = experimentID.string
        text.withUTF8 { bytes in
            for (place, byte) in bytes[start...].prefix(16).enumerated() {
                if place < 8 {
                    high |= UInt64(byte) << UInt64(56 - 8 * place)
                } else {
                    low |= UInt64(byte) << UInt64(120 - 8 * place)
                }
            }
        }
        return (high, low)
    }

    private static func isAscending(_ entries: [Entry]) -> Bool {
        guard var former = entries.first?.experimentID else { return true }
        for entry in entries.dropFirst() {
            guard former < entry.experimentID else { return false }
            former = entry.experimentID
        }
        return true
    }

    func contains(_ experimentID: Identifier) -> Bool {
        var rest = entries[...]
        while let middle = rest.indices.middle {
            let found = rest[middle].experimentID
            if found == experimentID { return true }
            rest = found < experimentID ? rest[(middle + 1)...] : rest[..<middle]
        }
        return false
    }
}

extension Range<Int> {
    fileprivate var middle: Int? { isEmpty ? nil : lowerBound + count / 2 }
}

extension ExperimentBucketMap: ExpressibleByDictionaryLiteral {
    public init(dictionaryLiteral entries: (Identifier, Identifier)...) {
        self.init(entries.map { Entry(experimentID: $0, variationID: $1) })
    }

    public init(_ variations: [Identifier: Identifier]) {
        self.init(variations.map { Entry(experimentID: $0.key, variationID: $0.value) })
    }
}
