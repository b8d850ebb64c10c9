public import Bucketing
public import JSON

/// Names a sticky document: an attribute that identifies users, such as `id` or `deviceId`, and its value.
public struct StickyDocumentKey: Sendable, Hashable {
    public var attributeName: Identifier
    /// The value of the attribute. For an attribute such as `id` it is the id of a user.
    public var attributeValue: Identifier

    public init(attributeName: Identifier, attributeValue: Identifier) {
        self.attributeName = attributeName
        self.attributeValue = attributeValue
    }
}

/// The variations that GrowthBook SDKs have assigned to one value of an attribute, or the opaque objects in which
/// Statsig SDKs store their variations.
///
/// A document does not expire, and it keeps the assignments of older bucket versions, because SDKs exclude users by
/// them. Erasing a user erases every document whose attribute value is the user's id. The name of the attribute does
/// not matter, because apps may choose any name for it.
public struct StickyDocument: Sendable, Equatable {
    public var key: StickyDocumentKey
    /// For GrowthBook, the variation keys by `<experiment>__<bucketVersion>`. For Statsig, JSON texts by configuration.
    public var assignments: [Identifier: Identifier]

    public init(key: StickyDocumentKey, assignments: [Identifier: Identifier] = [:]) {
        self.key = key
        self.assignments = assignments
    }

    /// The assignments as stores and the audit log keep them: a JSON object in the byte order of its keys.
    public var content: JSONValue {
        var object = JSONObject()
        for (name, variation) in assignments.sorted(by: { $0.key < $1.key }) {
            object[name.string] = .string(variation.string)
        }
        return .object(object)
    }

    /// Decodes stored assignments.
    ///
    /// - Parameter content: the ``content``, encoded.
    /// - Throws: ``StorageError/damaged(reason:)`` unless it is a JSON object of strings.
    public init(key: StickyDocumentKey, content: String) throws(StorageError) {
        self.init(key: key)
        let object = (try? JSONParser().parse(content))?.object
        for member in object ?? JSONObject() {
            assignments[Identifier(member.key)] = member.value.string.map { Identifier($0) }
        }
        guard let object, assignments.count == object.count else {
            let name = "\(key.attributeName) '\(key.attributeValue)'"
            throw .damaged(
                reason: "the sticky document of \(name) is damaged; erase the user with DELETE to start over")
        }
    }
}

/// Assignments to merge into a sticky document, each independently.
public struct StickyDocumentChange: Sendable {
    public var key: StickyDocumentKey
    public var assignments: [Identifier: Identifier]
    /// The keys of assignments that are removed.
    public var removed: Set<Identifier>
    /// Which assignment stays if the document and the change have different assignments with the same key.
    public var onConflict: ProfileChange.ConflictRule

    public init(
        key: StickyDocumentKey, assignments: [Identifier: Identifier], removing removed: Set<Identifier> = [],
        onConflict: ProfileChange.ConflictRule = .replace
    ) {
        self.key = key
        self.assignments = assignments
        self.removed = removed
        self.onConflict = onConflict
    }
}
