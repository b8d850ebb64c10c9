public import Bucketing
public import Chronology
public import JSON

extension AuditEntry {
    /// The maximum size of the value before or after a change, in bytes. A larger value is replaced by its size.
    private static let maximumDetail = 4_096
    /// The maximum size of a target, in bytes. A longer target is cut off.
    private static let maximumTarget = 1_024

    /// Creates the entry of a note. The store assigns the id.
    public init(_ note: AuditNote, by author: Author, at now: Instant) {
        self.init(
            id: 0, recordedAt: now, author: author, action: note.action.rawValue, userID: note.userID,
            target: String(decoding: note.target.utf8.prefix(Self.maximumTarget), as: UTF8.self),
            before: Self.detail(note.before), after: Self.detail(note.after))
        sdkKey = note.sdkKey
    }

    /// Encodes the value before or after a change. A value that is too large becomes `{"omitted_bytes":5000}`.
    ///
    /// - Returns: `nil` for `null`.
    private static func detail(_ value: JSONValue) -> [UInt8]? {
        guard !value.isNull else { return nil }
        let bytes = value.encoded()
        guard bytes.count > maximumDetail else { return bytes }
        let omitted: JSONValue = ["omitted_bytes": .integer(Int64(bytes.count))]
        return omitted.encoded()
    }

    /// Removes everything that identifies an erased user. Action, time and author stay.
    public mutating func anonymize() {
        userID = nil
        before = nil
        after = nil
    }

    /// Removes the id of an erased user from the entry about the merge of this user into an account. The entry is about
    /// the account, so the rest of it stays.
    public mutating func anonymizeMerge(of userID: Identifier) {
        guard action == AuditAction.profileMerge.rawValue, let bytes = after,
            var detail = (try? JSONParser().parse(bytes))?.object, detail["from"]?.string == userID.string
        else { return }
        detail["from"] = .null
        after = JSONValue.object(detail).encoded()
    }

    /// Whether the entry meets a query. The limit of the query is not considered.
    public func matches(_ query: AuditQuery) -> Bool {
        if let wanted = query.author, author.name != wanted { return false }
        if let wanted = query.action, action != wanted.rawValue { return false }
        if let wanted = query.userID, userID != wanted { return false }
        if let wanted = query.target, target != wanted { return false }
        if let since = query.since, recordedAt < since { return false }
        if let until = query.until, recordedAt >= until { return false }
        if let after = query.after, id >= after { return false }
        return true
    }
}

extension AuditNote {
    /// Returns the notes of an admin's change of a profile. Changes by app servers are not recorded, so there are no
    /// notes for them.
    static func notes(
        _ change: ProfileChange, from former: ProfileRecord?, to profile: ProfileRecord?
    ) -> [AuditNote] {
        func note(_ action: AuditAction, _ experimentID: Identifier) -> AuditNote {
            AuditNote(
                action, of: experimentID.string, userID: change.userID, before: describe(former?[experimentID]),
                after: describe(profile?[experimentID]))
        }
        switch change.operation {
        case .override(let experimentID, _, _, _):
            return [note(.overrideSet, experimentID)]
        case .restore(let assignments, _, _):
            return assignments.filter { $0.value.source == .override && former?[$0.key] != profile?[$0.key] }
                .keys.sorted().map { note(.overrideSet, $0) }
        case .remove(let experimentID):
            return [note(.assignmentRemove, experimentID)]
        case .erase:
            return [AuditNote(.profileErase, of: "")]
        case .eraseKeepingTotals:
            return [AuditNote(.profileErase, of: "", after: ["keep_totals": true])]
        case .replace, .save, .assign:
            return []
        }
    }

    /// Describes the merge of an anonymous user into an account: the changed assignments of the account, before and
    /// after, and the overrides of the anonymous user, which end with the merge.
    ///
    /// - Parameters:
    ///   - former: the profile of the account before the merge.
    ///   - profile: the profile of the account after the merge.
    ///   - anonymous: the profile of the anonymous user.
    init(
        _ merge: ProfileMerge, from former: ProfileRecord?, to profile: ProfileRecord?,
        ending anonymous: ProfileRecord?
    ) {
        let endedOverrides = Self.descriptions(of: anonymous) { _, assignment in
            assignment.source == .override ? assignment : nil
        }
        let replaced = Self.descriptions(of: profile) { experimentID, merged in
            let own = former?[experimentID]
            return own == merged ? nil : own
        }
        let changed = Self.descriptions(of: profile) { experimentID, merged in
            former?[experimentID] == merged ? nil : merged
        }
        var before = JSONObject()
        if !replaced.isEmpty { before["assignments"] = .object(replaced) }
        if !endedOverrides.isEmpty { before["overrides_of_from"] = .object(endedOverrides) }
        self.init(
            .profileMerge, of: "", userID: merge.userID, before: before.isEmpty ? .null : .object(before),
            after: [
                "from": .string(merge.anonymousID.string),
                "on_conflict": merge.conflictRule == .keep ? "keep" : "replace",
                "assignments": .object(changed),
            ])
    }

    /// Returns descriptions of assignments by experiment.
    ///
    /// - Parameter select: returns the assignment to describe, given the experiment and the profile's assignment there;
    ///   `nil` to leave the experiment out.
    private static func descriptions(
        of profile: ProfileRecord?, _ select: (_ experimentID: Identifier, _ assignment: Assignment) -> Assignment?
    ) -> JSONObject {
        var descriptions = JSONObject()
        guard let profile else { return descriptions }
        for entry in profile.entries {
            let experimentID = profile.experimentID(of: entry)
            guard let assignment = select(experimentID, profile.assignment(of: entry)) else { continue }
            descriptions[experimentID.string] = describe(assignment)
        }
        return descriptions
    }

    /// Describes an assignment; `null` for none.
    private static func describe(_ assignment: Assignment?) -> JSONValue {
        guard let assignment else { return .null }
        var description = JSONObject()
        description["variation_id"] = .string(assignment.variationID.string)
        description["source"] = .string(assignment.source.name)
        if assignment.source == .override {
            if let reason = assignment.layer?.reason { description["reason"] = .string(reason) }
            if let expiresAt = assignment.expiresAt { description["expires_at"] = .string(expiresAt.rfc3339) }
        }
        return .object(description)
    }

    /// Describes a forced variation, or with `nil` its removal.
    ///
    /// - Parameter former: the key of the variation that was forced before; `nil` if there was none.
    init(
        forcing variationKey: Identifier?, replacing former: Identifier?, experimentKey: Identifier, sdkKey: String,
        userID: Identifier
    ) {
        func describe(_ variationKey: Identifier?) -> JSONValue {
            guard let variationKey else { return .null }
            return ["variation_key": .string(variationKey.string), "sdk_key": .string(sdkKey)]
        }
        self.init(
            variationKey == nil ? .forcedVariationRemove : .forcedVariationSet, of: experimentKey.string,
            userID: userID,
            before: describe(former), after: describe(variationKey))
    }

    /// Describes the definition of an attribute.
    ///
    /// - Returns: `nil` if the definition changed nothing.
    public init?(_ result: AttributeDefinitionResult, replacing former: AttributeDefinition?) {
        switch result {
        case .created(let stored), .changed(let stored):
            self.init(
                .attributePut, of: stored.name.string, before: former?.document ?? .null, after: stored.document)
        case .unchanged, .otherType: return nil
        }
    }

    /// Describes the removal of an attribute.
    public init(removing former: AttributeDefinition) {
        self.init(.attributeDelete, of: former.name.string, before: former.document)
    }

    /// Describes the definition of a segment.
    ///
    /// - Parameter former: the conditions of the segment before; `nil` if it is new.
    public init(_ segment: Segment, replacing former: JSONValue?) {
        self.init(.segmentPut, of: segment.name.string, before: former ?? .null, after: segment.conditions)
    }

    /// Returns this note about a datafile with the versions and revisions before and after. The log does not keep the
    /// content of datafiles.
    ///
    /// - Parameter approver: the person who approved the change; `nil` if it was not proposed.
    public func activating(
        _ datafile: StoredDatafile, replacing former: StoredDatafile?, approvedBy approver: String? = nil
    ) -> AuditNote {
        var note = self
        note.sdkKey = datafile.sdkKey
        note.before = former.map { Self.describe($0, before) } ?? .null
        note.after = Self.describe(datafile, after)
        if let approver, var object = note.after.object {
            object["approved_by"] = .string(approver)
            note.after = .object(object)
        }
        return note
    }

    /// Describes a datafile, with the members of a further description.
    private static func describe(_ datafile: StoredDatafile, _ detail: JSONValue) -> JSONValue {
        var description = JSONObject()
        description["version"] = .integer(datafile.version)
        description["revision"] = .string(datafile.revision)
        for member in detail.object ?? JSONObject() { description[member.key] = member.value }
        return .object(description)
    }
}
