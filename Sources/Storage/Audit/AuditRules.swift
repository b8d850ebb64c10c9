public import Bucketing
public import Chronology
public import JSON

extension AuditEntry {
    /// The maximum size of the value before or after a change, in bytes. Of a larger value only the size is kept.
    private static let maximumDetail = 4_096
    /// The maximum size of a target, in bytes.
    private static let maximumTarget = 1_024

    /// Creates the entry of a note. The store assigns the id.
    public init(_ note: AuditNote, by author: Author, at now: Instant) {
        self.init(
            id: 0, recordedAt: now, author: author, action: note.action.rawValue, userID: note.userID,
            target: String(decoding: note.target.utf8.prefix(Self.maximumTarget), as: UTF8.self),
            before: Self.detail(note.before), after: Self.detail(note.after))
        sdkKey = note.sdkKey
    }

    /// Encodes a value, or the size of a value that is too large, as `{"omitted_bytes":5000}`.
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

    /// Removes the id of an erased user from the entry of a merge into another user.
    public mutating func anonymizeMerge(of userID: Identifier) {
        guard action == AuditAction.profileMerge.rawValue, let bytes = after,
            var detail = (try? JSONParser().parse(bytes))?.object, detail["from"]?.string == userID.string
        else { return }
        detail["from"] = .null
        after = JSONValue.object(detail).encoded()
    }

    /// Whether the entry meets a query, apart from the query's limit.
    public func matches(_ query: AuditQuery) -> Bool {
        (query.author.map { $0 == author.name } ?? true) && (query.action.map { $0.rawValue == action } ?? true)
            && (query.userID.map { $0 == userID } ?? true) && (query.target.map { $0 == target } ?? true)
            && (query.since.map { recordedAt >= $0 } ?? true) && (query.until.map { recordedAt < $0 } ?? true)
            && (query.after.map { id < $0 } ?? true)
    }
}

extension AuditNote {
    /// Returns the notes of an admin's change of a profile. Changes by app servers have none, because they are not
    /// recorded.
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

    /// Describes the merge of an anonymous user: the changed assignments of the account, before and after, and the
    /// overrides of the anonymous user, which have ended.
    init(
        _ merge: ProfileMerge, from former: ProfileRecord?, to profile: ProfileRecord?,
        ending anonymous: ProfileRecord?
    ) {
        var before = JSONObject()
        var after = JSONObject()
        var ended = JSONObject()
        for entry in (anonymous ?? .empty).entries where entry.source == .override {
            guard let experimentID = anonymous?.experimentID(of: entry) else { continue }
            ended[experimentID.string] = Self.describe(anonymous?[experimentID])
        }
        for entry in (profile ?? .empty).entries {
            let experimentID = profile?.experimentID(of: entry) ?? ""
            let own = former?[experimentID]
            let merged = profile?[experimentID]
            guard own != merged else { continue }
            if own != nil { before[experimentID.string] = Self.describe(own) }
            after[experimentID.string] = Self.describe(merged)
        }
        var lost = JSONObject()
        if !before.isEmpty { lost["assignments"] = .object(before) }
        if !ended.isEmpty { lost["overrides_of_from"] = .object(ended) }
        self.init(
            .profileMerge, of: "", userID: merge.userID, before: lost.isEmpty ? .null : .object(lost),
            after: [
                "from": .string(merge.anonymousID.string),
                "on_conflict": merge.conflictRule == .keep ? "keep" : "replace",
                "assignments": .object(after),
            ])
    }

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

    /// Describes the definition of an attribute; `nil` if it changed nothing.
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

    /// Adds to a note about a datafile the versions and revisions before and after; the log does not keep the content.
    ///
    /// - Parameter approver: the person who approved a proposed change.
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

    private static func describe(_ datafile: StoredDatafile, _ detail: JSONValue) -> JSONValue {
        var description = JSONObject()
        description["version"] = .integer(datafile.version)
        description["revision"] = .string(datafile.revision)
        for member in detail.object ?? JSONObject() { description[member.key] = member.value }
        return .object(description)
    }
}
