public import Bucketing
public import JSON

/// What ``AttributeRules`` made of a change: its result, and what the store must write.
public struct AttributeOutcome: Sendable {
    public enum Effect: Sendable {
        case none
        case put(AttributeRecord)
        case delete
    }

    public var result: AttributeChangeResult
    public var effect: Effect
}

/// The rules of user attributes and their schema. Pure: no I/O.
public enum AttributeRules {
    /// Decodes the record that a change is about to be applied to. An unreadable one can still be removed.
    ///
    /// - Parameter bytes: `nil` if there is no record.
    /// - Throws: ``StorageError/damaged(reason:)``
    public static func stored(
        _ bytes: [UInt8]?, for change: AttributeChange
    ) throws(StorageError) -> AttributeRecord? {
        guard let bytes else { return nil }
        if case .removeAll = change.operation { return AttributeRecord(checking: bytes) ?? .empty }
        return try AttributeRecord(stored: bytes, of: change.userID)
    }

    /// Applies a change to a user's attributes.
    ///
    /// - Parameters:
    ///   - stored: see ``stored(_:for:)``; `nil` if there is none.
    ///   - isDefined: whether the schema has an attribute of this number; called for those that are set.
    public static func apply<Failure>(
        _ change: AttributeChange, to stored: AttributeRecord?, isDefined: (UInt32) throws(Failure) -> Bool
    ) throws(Failure) -> AttributeOutcome {
        guard case .update(let updates) = change.operation else {
            return AttributeOutcome(
                result: .applied(changed: stored?.numbers ?? []), effect: stored == nil ? .none : .delete)
        }
        var changed: [UInt32] = []
        let record = (stored ?? .empty).applying(updates) { changed.append($0) }
        for number in changed where updates[number] != .remove {
            guard try isDefined(number) else { return AttributeOutcome(result: .schemaHasChanged, effect: .none) }
        }
        let effect: AttributeOutcome.Effect = changed.isEmpty ? .none : record.isEmpty ? .delete : .put(record)
        return AttributeOutcome(result: .applied(changed: changed), effect: effect)
    }

    /// Decides on a definition, given the one of the same name.
    ///
    /// - Returns: a created definition still has the number of `wanted`; the store assigns its number.
    public static func define(
        _ wanted: AttributeDefinition, replacing former: AttributeDefinition?
    ) -> AttributeDefinitionResult {
        guard let former else { return .created(wanted) }
        guard former.type == wanted.type, former.isMultiple == wanted.isMultiple else { return .otherType(former) }
        let definition = wanted.numbered(former.number)
        return definition == former ? .unchanged(former) : .changed(definition)
    }
}

extension AttributeDefinition {
    /// Returns the definition with another number.
    public func numbered(_ number: UInt32) -> AttributeDefinition {
        AttributeDefinition(
            name: name, number: number, type: type, allowedValues: allowedValues, isMultiple: isMultiple)
    }

    /// The definition without name and number, as stores and the audit log keep it.
    public var document: JSONValue {
        var object = JSONObject()
        object["type"] = .string(type.rawValue)
        if type == .selection {
            object["values"] = .array(allowedValues.map { .string($0.string) })
            object["multiple"] = .bool(isMultiple)
        }
        return .object(object)
    }

    /// Reads a stored definition.
    ///
    /// - Returns: `nil` for a definition of a newer release.
    public init?(name: Identifier, number: UInt32, document: JSONValue) {
        guard let object = document.object,
            let type = object["type"]?.string.flatMap({ AttributeType(rawValue: $0) })
        else { return nil }
        self.init(
            name: name, number: number, type: type,
            allowedValues: (object["values"]?.array ?? []).compactMap(\.string).map { Identifier($0) },
            isMultiple: object["multiple"]?.bool ?? false)
    }
}
