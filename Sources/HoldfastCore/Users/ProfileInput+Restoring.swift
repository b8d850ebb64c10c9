public import Bucketing
import Chronology
public import Definitions
public import JSON
import Storage

extension ProfileInput {
    /// Parses a line of an import.
    ///
    /// An export with detail writes `source`, `assigned_at` and `updated_at` of each assignment. An assignment with all
    /// three is restored with these values. Any other assignment is saved with the current time.
    ///
    /// - Throws: 400 with a pointer to the member that is wrong.
    public init(line: UnsafeRawBufferPointer) throws(CoreError) {
        if let plain = PlainProfileScanner.scan(line) {
            self = plain
            return
        }
        let value = try JSONInput.parse(line, called: "the line")
        try self.init(value)
        let place: JSONPointer = ["experiment_bucket_map"]
        for member in value.object?["experiment_bucket_map"]?.object ?? JSONObject() {
            guard let entry = member.value.object, Self.hasOrigin(entry) else { continue }
            restored[Identifier(member.key)] = try Self.assignment(entry, at: place.appending(member.key))
        }
    }

    /// Whether the line restores an override.
    public func restoresOverride(in experimentID: Identifier) -> Bool {
        restored[experimentID]?.source == .override
    }

    /// The location of an override that the line restores; `nil` if there is none. Only an admin may restore an
    /// override.
    public var restoredOverride: JSONPointer? {
        restored.first { $0.value.source == .override }.map {
            JSONPointer().appending("experiment_bucket_map").appending($0.key.string).appending("source")
        }
    }

    /// Whether an assignment has its source and its times, so that it can be restored.
    private static func hasOrigin(_ entry: JSONObject) -> Bool {
        ["source", "assigned_at", "updated_at"].allSatisfy { entry[$0] != nil }
    }

    /// Parses an assignment with its source and times.
    private static func assignment(_ entry: JSONObject, at place: JSONPointer) throws(CoreError) -> Assignment {
        let variationID = try variationID(entry["variation_id"] ?? .null, at: place.appending("variation_id"))
        let name = try entry.text("source", in: place)
        guard let source = Assignment.Source.allCases.first(where: { $0.name == name }) else {
            let known = Assignment.Source.allCases.map { "'\($0.name)'" }.joined(separator: ", ")
            throw CoreError(
                .invalid, "`source` must be one of \(known); got '\(name.shortened(to: CoreError.longestQuote))'",
                at: place.appending("source"))
        }
        return Assignment(
            variationID: variationID, source: source, assignedAt: try time("assigned_at", of: entry, at: place),
            updatedAt: try time("updated_at", of: entry, at: place),
            expiresAt: try entry.optionalTime("expires_at", in: place),
            layer: source == .override ? try layer(entry, at: place) : nil)
    }

    /// Returns a required time.
    private static func time(
        _ name: String, of entry: JSONObject, at place: JSONPointer
    ) throws(CoreError) -> Instant {
        guard let time = try entry.optionalTime(name, in: place) else {
            throw CoreError(.invalid, "`\(name)` is required", at: place.appending(name))
        }
        return time
    }

    /// Returns the author and the reason of an override, and the assignment that it hides.
    private static func layer(_ entry: JSONObject, at place: JSONPointer) throws(CoreError) -> OverrideLayer? {
        var beneath: Assignment?
        if let value = entry["beneath"], !value.isNull {
            let place = place.appending("beneath")
            guard let object = value.object else {
                throw CoreError(.invalid, "`beneath` must be an assignment; got \(value.kind)", at: place)
            }
            let assignment = try assignment(object, at: place)
            guard assignment.source != .override else {
                throw CoreError(
                    .invalid, "the underlying assignment of an override must not be an override",
                    at: place.appending("source"))
            }
            beneath = assignment
        }
        return OverrideLayer(
            author: try entry.optionalText("author", in: place), reason: try reason(of: entry, at: place),
            beneath: beneath)
    }
}
