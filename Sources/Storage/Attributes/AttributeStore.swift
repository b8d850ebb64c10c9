public import Bucketing

/// A change of one user's attributes, applied atomically.
public struct AttributeChange: Sendable {
    public enum Operation: Sendable {
        /// Updates keyed by attribute number; other attributes keep their values.
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
    /// An attribute to be set has been deleted in the meantime. Nothing was stored.
    case schemaHasChanged
}

/// The result of defining an attribute.
public enum AttributeDefinitionResult: Sendable, Equatable {
    case created(AttributeDefinition)
    case changed(AttributeDefinition)
    case unchanged(AttributeDefinition)
    /// The name belongs to an attribute of another type, whose values would become invalid. Nothing was stored.
    case otherType(AttributeDefinition)
}

/// Stores user attributes, their schema, and segments.
///
/// Changes of the schema and of segments are recorded in the audit log, and reported by
/// ``ProjectStore/projects(ifChangedSince:datafilesAfter:_:)``.
public protocol AttributeStore: AnyObject {
    /// Reads the attributes of a user; `nil` if there are none.
    func attributes(of userID: Identifier, _ completion: @escaping Completion<AttributeRecord?>)

    /// Applies a change.
    func submit(_ change: AttributeChange, _ completion: @escaping Completion<AttributeChangeResult>)

    /// Applies changes in order. Each has its own result.
    func submit(
        _ changes: [AttributeChange], _ completion: @escaping ([Result<AttributeChangeResult, StorageError>]) -> Void)

    /// Defines an attribute, or changes the allowed values of a selection. Ignores the definition's number.
    func putAttribute(
        _ definition: AttributeDefinition, by author: Author,
        _ completion: @escaping Completion<AttributeDefinitionResult>)

    /// Deletes an attribute. Readers that know the new schema no longer see its values, which are deleted in the
    /// background.
    ///
    /// - Parameter completion: called with whether it existed.
    func removeAttribute(_ name: Identifier, by author: Author, _ completion: @escaping Completion<Bool>)

    /// Defines a segment, or changes its conditions.
    ///
    /// - Parameter completion: called with whether the segment is new.
    func putSegment(_ segment: Segment, by author: Author, _ completion: @escaping Completion<Bool>)

    /// Deletes a segment.
    ///
    /// - Parameter completion: called with whether it existed.
    func removeSegment(_ name: Identifier, by author: Author, _ completion: @escaping Completion<Bool>)

    /// Scans the users who have attributes, in the byte order of their ids, without blocking writers or other readers.
    /// The scan is not a snapshot: it sees each user's attributes at the moment it reaches the user.
    ///
    /// - Parameter scope: whether to list a page of users or to count all.
    func scan(_ matcher: SegmentMatcher, _ scope: SegmentScan, _ completion: @escaping Completion<SegmentPage>)
}
