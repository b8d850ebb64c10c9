public import Bucketing
public import Chronology

/// A user's variation in one experiment, and its origin.
public struct Assignment: Hashable, Sendable {
    /// The origin of an assignment. Records store the raw value.
    public enum Source: UInt8, Sendable, CaseIterable {
        /// Saved by an app server.
        case saved = 1
        /// Decided by this server.
        case bucketed = 2
        /// Set by an admin. The override covers the underlying assignment until the override expires or an admin
        /// removes it.
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
    /// The first moment at which the assignment is gone; `nil` if it does not expire.
    public var expiresAt: Instant?
    /// The additional properties of an override; `nil` for any other source.
    public let layer: OverrideLayer?

    /// - Parameters:
    ///   - expiresAt: `nil` if the assignment does not expire.
    ///   - layer: ignored unless the source is ``Source/override``.
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
    /// The name of the admin who set the override; `nil` if it is unknown.
    public let author: String?
    /// The reason that the admin gave; `nil` if there is none.
    public let reason: String?
    /// The assignment that the override covers; `nil` if there is none. Saves still update this assignment, and it
    /// counts again when the override ends.
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
    /// The underlying assignment of an override; for any other source the assignment itself.
    public var withoutOverride: Assignment? { source == .override ? layer?.beneath : self }

    /// Returns this override with another underlying assignment.
    func covering(_ beneath: Assignment?) -> Assignment {
        Assignment(
            variationID: variationID, source: source, assignedAt: assignedAt, updatedAt: updatedAt,
            expiresAt: expiresAt, layer: OverrideLayer(author: layer?.author, reason: layer?.reason, beneath: beneath))
    }

    /// Returns the assignment that counts at a time; `nil` if nothing is left. An expired override gives way to its
    /// underlying assignment, and an expired underlying assignment is removed.
    func visible(at now: Instant) -> Assignment? {
        let isPresent = expiresAt.map { $0 > now } ?? true
        guard let beneath = layer?.beneath else { return isPresent ? self : nil }
        let visibleBeneath = beneath.visible(at: now)
        guard isPresent else { return visibleBeneath }
        return visibleBeneath == nil ? covering(nil) : self
    }

    /// When the assignment or its underlying assignment expires, whichever is first; `nil` if neither expires.
    var earliestExpiry: Instant? {
        guard let ofBeneath = layer?.beneath?.expiresAt else { return expiresAt }
        guard let expiresAt else { return ofBeneath }
        return min(expiresAt, ofBeneath)
    }
}
