public import Bucketing

/// Where the attributes of users are kept, their schema, and segments of users. The promises of ``ProfileStore`` hold
/// here too, and changes of the schema and of segments leave a note in the audit log. The schema and the segments count as changes of ``ProjectStore/projectChanges()``.
public protocol AttributeStore: Sendable {
    /// A reader for the exclusive use of one thread.
    ///
    /// - Throws: ``StorageError/unavailable(reason:)``, ``StorageError/closed``
    func makeUserReader() throws(StorageError) -> sending any UserReader

    /// Applies a change after those submitted before it.
    func submit(
        _ change: AttributeChange, completion: @escaping @Sendable (Result<AttributeChangeResult, StorageError>) -> Void
    )

    /// Applies changes in their order, after those submitted before them: one submission, each with its own result.
    func submit(
        _ changes: [AttributeChange],
        completion: @escaping @Sendable ([Result<AttributeChangeResult, StorageError>]) -> Void
    )

    // MARK: The schema

    /// The attributes and segments that are defined. Blocks, and is not for an event loop.
    func attributeSchema() throws(StorageError) -> AttributeSchema

    /// Defines an attribute, or gives a selection other values; the number of the definition does not count.
    func putAttribute(
        _ definition: AttributeDefinition, by author: Author,
        completion: @escaping @Sendable (Result<AttributeDefinitionResult, StorageError>) -> Void
    )

    /// Deletes an attribute. Its values are gone for every reader who knows of it, and are deleted in the background.
    ///
    /// - Parameter completion: called with whether there was one.
    func removeAttribute(
        _ name: Identifier, by author: Author,
        completion: @escaping @Sendable (Result<Bool, StorageError>) -> Void
    )

    // MARK: Segments

    /// - Parameter completion: called with whether the segment is new.
    func putSegment(
        _ segment: Segment, by author: Author, completion: @escaping @Sendable (Result<Bool, StorageError>) -> Void
    )

    /// - Parameter completion: called with whether there was one.
    func removeSegment(
        _ name: Identifier, by author: Author, completion: @escaping @Sendable (Result<Bool, StorageError>) -> Void
    )

    /// Looks through the users who have attributes, in the order of their ids' bytes, without making changes or
    /// readers wait. A user's attributes are as they are when the look reaches the user.
    ///
    /// - Parameters:
    ///   - scope: how far to look.
    ///   - completion: called on a thread of the store's choice.
    func scan(
        _ matcher: SegmentMatcher, _ scope: SegmentScan, completion: @escaping @Sendable (Result<SegmentPage, StorageError>) -> Void
    )
}

/// Reads profiles and attributes on one thread.
public typealias UserReader = ProfileReader & AttributeReader

/// Reads attributes on one thread, in the batches of a ``ProfileReader``.
public protocol AttributeReader: AnyObject {
    /// The attributes of a user; `nil` when there are none.
    func attributes(of userID: Identifier, _ completion: @escaping (Result<AttributeRecord?, StorageError>) -> Void)
}
