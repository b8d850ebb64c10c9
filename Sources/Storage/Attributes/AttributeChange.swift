public import Bucketing

/// One thing to do to one user's attributes. A store applies it whole or not at all, in one transaction.
public struct AttributeChange: Sendable {
    public enum Operation: Sendable {
        /// What becomes of some attributes, by their numbers; others keep their values.
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

/// What a store answers to an ``AttributeChange``.
public enum AttributeChangeResult: Sendable, Equatable {
    /// The numbers of the attributes that have another value now than before, or none any more. If there are none,
    /// nothing was written.
    case applied(changed: [UInt32])
    /// An attribute to be set has been deleted meanwhile; nothing was stored.
    case schemaHasChanged
}

/// What a store answers to a definition.
public enum AttributeDefinitionResult: Sendable, Equatable {
    case created(AttributeDefinition)
    case changed(AttributeDefinition)
    case unchanged(AttributeDefinition)
    /// There is an attribute of this name and another type, whose values would no longer be values; nothing was stored.
    case otherType(AttributeDefinition)
}
