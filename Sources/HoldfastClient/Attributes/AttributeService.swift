import Foundation
import Synchronization

/// Stores user attributes on the server, for audiences and segments.
///
/// ```swift
/// let attributes = AttributeService(client: client)
/// try attributes.update(attributes: ["country": "de", "age": 30])
/// try attributes.delete(attributes: ["age"])
/// ```
///
/// Both calls queue the change on disk and return at once. Changes are sent in order and in batches. An unchanged value
/// is not sent again for ``HoldfastConfiguration/attributeRefreshInterval``. Update attributes that change together in one
/// call: it is stored or refused as a whole.
///
/// - Warning: write an attribute either with this class or through the server's API, not both. The client does not see
///   what others write: a value that it has sent before is not sent again when another writer has changed it.
public final class AttributeService: Sendable {
    private struct Sent: Codable {
        /// `nil` if the attribute was deleted.
        var value: UserAttributeValue?
        /// Seconds since 1970.
        var at: Double
    }

    private struct Entry: Codable {
        var userID: String
        var attributes: [String: Sent]
    }

    private struct State {
        var users: BoundedCache<Entry>
        var hasChanged = false
    }

    private let client: HoldfastClient
    private let state: Mutex<State>
    private let changed = Signal()
    /// What the service has registered with the client.
    private let registrations = OwnedTokens()
    /// The server's definitions, once they were fetched.
    private let schema = Mutex<[Key: DefinedAttribute]?>(nil)
    /// Whether updates are compared with the definitions: until the server refuses to give them.
    private let logsProblems: Atomic<Bool>

    private static let cacheName = "attributes.cache"
    /// Maximum number of remembered attributes per user, beyond which only the last change is remembered.
    private static let namesOfUser = 1_000

    public init(client: HoldfastClient) {
        self.client = client
        let core = client.core
        var state = State(users: BoundedCache(capacity: core.configuration.cachedProfiles))
        for entry in core.cache.read(Self.cacheName, as: [Entry].self) ?? [] {
            state.users.set(Key(entry.userID), entry)
        }
        // Queued events count as sent.
        for case .attributes(let update) in core.waiting(.attributes) {
            Self.remember(update, core.clock.now.timeIntervalSince1970, &state)
        }
        self.state = Mutex(state)
        logsProblems = Atomic(core.configuration.checksAttributes && core.configuration.logger != nil)
        registrations.add(core.notices.observe { [weak self] in self?.settled($0) })
        registrations.add(core.whenSaving(after: changed) { [weak self] in self?.write() })
    }

    deinit {
        write()
    }

    /// Sets attributes and keeps all others.
    ///
    /// - Parameter userID: by default the client's current user.
    /// - Throws: ``HoldfastError/notInitialized`` without a user, ``HoldfastError/invalidArgument(_:)`` for an invalid user
    ///   id, ``HoldfastError/destroyed``.
    public func update(attributes: [String: UserAttributeValue], userID: String? = nil) throws(HoldfastError) {
        try send(AttributeEvent(userID: try user(userID), attributes: attributes, removed: []))
    }

    /// Sets attributes of any type that an attribute can have; see ``UserAttributeValue/init(_:)``.
    ///
    /// - Returns: the names of attributes that were not sent because their values have no such type.
    /// - Throws: as the method for ``UserAttributeValue``.
    @_disfavoredOverload
    @discardableResult
    public func update(attributes: [String: Any], userID: String? = nil) throws(HoldfastError) -> [String] {
        let values = attributes.compactMapValues { UserAttributeValue($0) }
        let refused = attributes.keys.filter { values[$0] == nil }.sorted()
        if !refused.isEmpty {
            client.core.log(
                .error, "attributes have values of no supported type", ["names": refused.joined(separator: ", ")])
        }
        try update(attributes: values, userID: userID)
        return refused
    }

    /// Deletes attributes. Parameters and errors are those of `update`.
    public func delete(attributes names: [String], userID: String? = nil) throws(HoldfastError) {
        try send(AttributeEvent(userID: try user(userID), attributes: [:], removed: names))
    }

    /// Returns the attributes that this device has last set for a user. Attributes of other devices and of the server's
    /// API are missing.
    ///
    /// - Parameter userID: by default the client's current user.
    public func attributes(userID: String? = nil) -> [String: UserAttributeValue] {
        guard let userID = userID ?? client.currentUser?.id else { return [:] }
        return state.withLock { $0.users.value(Key(userID))?.attributes ?? [:] }.compactMapValues(\.value)
    }

    /// Forgets which values were sent, so that the next update sends all of them. Use it when the server's attributes were
    /// deleted or defined anew, as during development.
    public func reset() {
        state.withLock { state in
            state.users = BoundedCache(capacity: client.core.configuration.cachedProfiles)
            state.hasChanged = true
        }
        schema.withLock { $0 = nil }
        changed.ring()
    }

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

    /// Returns a stream of the outcomes of updates and deletions, which buffers the newest 1,000 and ends with the client.
    public func outcomes() -> AsyncStream<AttributeChangeOutcome> {
        client.core.notices.stream(AttributeChangeOutcome.init)
    }

    // MARK: Schema

    /// Compares attributes with the definitions on the server (`GET /v1/attributes`).
    ///
    /// In debug builds each update does this in the background and logs the problems as errors.
    ///
    /// - Returns: what is wrong, by name.
    /// - Throws: ``HoldfastError`` if the definitions cannot be fetched.
    public func problems(of attributes: [String: UserAttributeValue]) async throws(HoldfastError) -> [String: String] {
        let definitions: [Key: DefinedAttribute]
        if let known = schema.withLock({ $0 }) {
            definitions = known
        } else {
            let response = try await client.core.server.request("GET", "v1/attributes")
            let list = try HoldfastServer.decode(DefinedAttribute.List.self, response.body).attributes
            definitions = Dictionary(list.map { (Key($0.name), $0) }) { _, last in last }
            schema.withLock { $0 = definitions }
        }
        var problems: [String: String] = [:]
        for (name, value) in attributes {
            guard let definition = definitions[Key(name)] else {
                problems[name] = "the server has no such attribute"
                continue
            }
            problems[name] = definition.problem(of: value)
        }
        return problems
    }

    private func logProblems(_ update: AttributeEvent) {
        guard logsProblems.load(ordering: .relaxed) else { return }
        let values = update.attributes
        Task { [weak self] in
            do throws(HoldfastError) {
                for (name, problem) in try await self?.problems(of: values) ?? [:] {
                    self?.client.core.log(.error, "attribute cannot be stored", ["name": name, "problem": problem])
                }
            } catch {
                if case .unauthorized = error {
                    // An app's token may not read them, and never will.
                    guard self?.logsProblems.exchange(false, ordering: .relaxed) == true else { return }
                }
                self?.client.core.log(
                    .debug, "attributes are not compared with definitions", ["error": error.localizedDescription])
            }
        }
    }

    private func send(_ update: AttributeEvent) throws(HoldfastError) {
        logProblems(update)
        let core = client.core
        let now = core.clock.now.timeIntervalSince1970
        let age = core.configuration.attributeRefreshInterval.inSeconds
        // Inside the lock, so that the queue has the order of the calls.
        let queued = state.withLock { state -> AttributeEvent? in
            let sent = state.users.value(Key(update.userID))?.attributes ?? [:]
            func isKnown(_ name: String, _ value: UserAttributeValue?) -> Bool {
                guard let sent = sent[name], abs(now - sent.at) < age else { return false }
                return sent.value == value
            }
            var update = update
            update.attributes = update.attributes.filter { !isKnown($0.key, $0.value) }
            update.removed = update.removed.filter { !isKnown($0, nil) }
            guard !(update.attributes.isEmpty && update.removed.isEmpty), core.enqueue(.attributes(update)) else {
                return nil
            }
            Self.remember(update, now, &state)
            return update
        }
        guard let queued else { return }
        changed.ring()
        if core.configuration.logger != nil, let json = try? HoldfastServer.encode(queued) {
            core.log(.trace, "attributes queued", ["update": String(decoding: json, as: UTF8.self)])
        }
    }

    private static func remember(_ update: AttributeEvent, _ now: Double, _ state: inout State) {
        let key = Key(update.userID)
        var entry = state.users.value(key) ?? Entry(userID: update.userID, attributes: [:])
        for (name, value) in update.attributes { entry.attributes[name] = Sent(value: value, at: now) }
        for name in update.removed { entry.attributes[name] = Sent(value: nil, at: now) }
        if entry.attributes.count > namesOfUser {
            let names = Set(update.attributes.keys).union(update.removed)
            entry.attributes = entry.attributes.filter { names.contains($0.key) }
        }
        state.users.set(key, entry)
        state.hasChanged = true
    }

    /// Forgets values that the server refused or that were dropped, so that the same value is sent again.
    private func settled(_ notice: DeliveryNotice) {
        guard case .attributes(let update) = notice.event else { return }
        switch notice.outcome {
        case .delivered:
            // The change may move the user into other audiences.
            if client.currentUser?.id.hasSameBytes(as: update.userID) == true { client.fetchInBackground() }
            return
        case .refused: break
        case .dropped where notice.wasKept: break
        case .dropped, .postponed: return
        }
        state.withLock { state in
            guard var entry = state.users.value(Key(update.userID)) else { return }
            for name in Array(update.attributes.keys) + update.removed
            where entry.attributes[name]?.value == update.attributes[name] {
                entry.attributes[name] = nil
            }
            state.users.set(Key(update.userID), entry)
            state.hasChanged = true
        }
    }

    private func write() {
        let entries = state.withLock { state -> [Entry]? in
            guard state.hasChanged, !client.core.isDestroyed else { return nil }
            state.hasChanged = false
            return state.users.all.map(\.value)
        }
        if let entries { client.core.cache.write(Self.cacheName, entries) }
    }
}
