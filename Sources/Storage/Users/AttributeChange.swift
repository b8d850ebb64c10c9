public import Bucketing

/// A change of one user's attributes, applied atomically by ``AttributeRules``.
public struct AttributeChange: Sendable {
    public enum Operation: Sendable {
        /// Sets or removes some attributes, by their numbers. Other attributes keep their values.
        case update([UInt32: AttributeUpdate])
        case removeAll
    }

    public var userID: Identifier
    public var operation: Operation

    public init(userID: Identifier, operation: Operation) {
        self.userID = userID
        self.operation = operation
    }
}

/// The result of an ``AttributeChange``.
public enum AttributeChangeResult: Sendable, Equatable {
    /// The numbers of the attributes whose value changed or was removed. If there are none, nothing was written.
    case applied(changed: [UInt32])
    /// An attribute to be set has been deleted from the schema meanwhile. Nothing was stored.
    case schemaHasChanged
}

/// The result of defining an attribute.
public enum AttributeDefinitionResult: Sendable, Equatable {
    case created(AttributeDefinition)
    case changed(AttributeDefinition)
    case unchanged(AttributeDefinition)
    /// The name belongs to an attribute of another type, whose values would become invalid. The value is the existing
    /// definition. Nothing was stored.
    case otherType(AttributeDefinition)
}
