public import Bucketing
public import JSON

/// The rules of user attributes and their schema. Pure: no I/O.
public enum AttributeRules {
    /// Applies a change to a user's attributes.
    ///
    /// - Returns: `nil` if `records` lacks a part that is needed; nothing has changed then.
    /// - Throws: ``StorageError/damaged(reason:)`` for an update if the stored attributes cannot be decoded.
    public static func apply(
        _ change: AttributeChange, to records: inout UserRecords
    ) throws(StorageError) -> AttributeChangeResult? {
        switch change.operation {
        case .removeAll: removeAll(&records)
        case .update(let updates): try update(updates, &records)
        }
    }

    /// Removes all attributes, even if they cannot be decoded.
    private static func removeAll(_ records: inout UserRecords) -> AttributeChangeResult? {
        guard records.has([.attributes]) else { return nil }
        let stored = if case .present(let record) = records.attributes { record } else { AttributeRecord.empty }
        if records.attributes.exists { records.write(.putAttributes(.empty, changed: stored.numbers)) }
        return .applied(changed: stored.numbers)
    }

    /// Sets and removes single attributes.
    private static func update(
        _ updates: [UInt32: AttributeUpdate], _ records: inout UserRecords
    ) throws(StorageError) -> AttributeChangeResult? {
        // The schema is only needed to set values. A removed attribute need not be defined any more.
        let setsValues = updates.values.contains { $0 != .remove }
        guard records.has(setsValues ? [.attributes, .definedAttributes] : [.attributes]) else { return nil }
        var changed: [UInt32] = []
        let record = (try records.attributes.get() ?? .empty).applying(updates) { changed.append($0) }
        let areDefined = changed.allSatisfy { updates[$0] == .remove || records.definedAttributes[$0] != nil }
        guard areDefined else { return .schemaHasChanged }
        if !changed.isEmpty { records.write(.putAttributes(record, changed: changed)) }
        return .applied(changed: changed)
    }

    /// Determines the result of defining an attribute.
    ///
    /// - Parameters:
    ///   - wanted: the definition of the request. Its number is ignored for an existing attribute.
    ///   - former: the existing definition of the same name; `nil` if there is none.
    /// - Returns: the result. A created definition still has the number of `wanted`: the caller assigns the final
    ///   number.
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
