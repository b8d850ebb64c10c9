/// Stores user attributes on the server, for audiences and segments.
///
/// ```swift
/// let attributes = AttributeService(client: client)
/// try attributes.update(attributes: ["country": "de", "age": 30])
/// try attributes.delete(attributes: ["age"])
/// ```
///
/// Both calls queue the change on disk and return at once. Changes are sent in order and in batches. An unchanged value
/// is not sent again for ``HoldfastConfiguration/attributeRefreshInterval``. Update attributes that change together in
/// one call: it is stored or refused as a whole.
///
/// - Warning: write an attribute either with this class or through the server's API, not both. The client does not see
///   the changes of other writers: after such a change it does not send a value again that it has sent before.
public final class AttributeService: Sendable {
    private let client: HoldfastClient

    /// All services of a client share what was sent.
    public init(client: HoldfastClient) {
        self.client = client
        // Reads the file now, so that the first update need not.
        _ = client.sentAttributes
    }

    /// Sets attributes and keeps all others.
    ///
    /// - Parameter userID: by default the client's current user.
    /// - Throws: ``HoldfastError/notInitialized`` without a user, ``HoldfastError/invalidArgument(_:)`` for an invalid
    ///   user id, ``HoldfastError/storage(_:)`` if the queue is full or cannot be written, ``HoldfastError/destroyed``.
    public func update(attributes: [String: UserAttributeValue], userID: String? = nil) throws(HoldfastError) {
        try send(AttributeEvent(userID: try user(userID), attributes: attributes, removed: []))
    }

    /// Sets attributes of any type that ``UserAttributeValue/init(_:)`` converts, all or none.
    ///
    /// - Throws: as the method for ``UserAttributeValue``, and ``HoldfastError/invalidArgument(_:)`` with the names of
    ///   the attributes whose values have other types.
    @_disfavoredOverload
    public func update(attributes: [String: Any], userID: String? = nil) throws(HoldfastError) {
        let values = attributes.compactMapValues { UserAttributeValue($0) }
        let refused = attributes.keys.filter { values[$0] == nil }.sorted()
        guard refused.isEmpty else {
            throw .invalidArgument(
                "attributes must be strings, finite numbers, booleans, dates or lists of strings; those of other types: "
                    + refused.joined(separator: ", "))
        }
        try update(attributes: values, userID: userID)
    }

    /// Deletes attributes. The parameter `userID` and the errors are those of `update`.
    public func delete(attributes names: [String], userID: String? = nil) throws(HoldfastError) {
        try send(AttributeEvent(userID: try user(userID), attributes: [:], removed: names))
    }

    /// Returns the attributes that this device has last set for a user. It does not return attributes that other
    /// devices or callers of the server's API have set.
    ///
    /// - Parameter userID: by default the client's current user.
    public func attributes(userID: String? = nil) -> [String: UserAttributeValue] {
        guard let userID = userID ?? client.currentUser?.id else { return [:] }
        return client.sentAttributes.attributes(of: userID)
    }

    /// Forgets which values were sent, so that the next update sends all of them. Use it when the server's attributes
    /// were deleted or defined anew, as during development.
    public func reset() {
        client.sentAttributes.reset()
        client.attributeDefinitions.reset()
    }

    /// A service of ``HoldfastClient/shared``.
    ///
    /// - Precondition: a client was started and not destroyed.
    public static var shared: AttributeService { AttributeService(client: .shared) }

    /// Returns the user of a call: the given one, or else the current one.
    private func user(_ id: String?) throws(HoldfastError) -> String {
        guard !client.core.isDestroyed else { throw .destroyed }
        guard let id = id ?? client.currentUser?.id else { throw .notInitialized }
        try HoldfastUser.check(id: id)
        return id
    }

    // MARK: Outcomes

    /// Calls a function with the outcome of each update and deletion, on an arbitrary thread.
    @discardableResult
    public func addObserver(_ observer: @escaping @Sendable (AttributeChangeOutcome) -> Void) -> ListenerToken {
        client.core.notices.observe { notice in
            if let outcome = AttributeChangeOutcome(notice) { observer(outcome) }
        }
    }

    /// Returns a stream of the outcomes of updates and deletions, which buffers the newest 1,000 and ends with the
    /// client.
    public func outcomes() -> AsyncStream<AttributeChangeOutcome> {
        client.core.notices.stream(AttributeChangeOutcome.init)
    }

    // MARK: Schema

    /// Compares attributes with the definitions on the server (`GET /v1/attributes`).
    ///
    /// In debug builds each update does this in the background and logs the problems as errors.
    ///
    /// - Returns: the problems, by the name of the attribute.
    /// - Throws: ``HoldfastError`` if the definitions cannot be fetched.
    public func problems(of attributes: [String: UserAttributeValue]) async throws(HoldfastError) -> [String: String] {
        try await client.attributeDefinitions.problems(of: attributes)
    }

    /// Queues a change, and in debug builds checks it.
    private func send(_ update: AttributeEvent) throws(HoldfastError) {
        client.attributeDefinitions.logProblems(of: update.attributes)
        try client.sentAttributes.send(update)
    }
}
