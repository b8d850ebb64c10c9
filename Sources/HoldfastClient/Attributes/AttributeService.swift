import Foundation
import Synchronization

/// Stores attributes of users on the server, where audiences and segments find them.
///
/// ```swift
/// let attributes = AttributeService(client: client)
/// attributes.update(attributes: ["country": "de", "age": 30])
/// attributes.delete(attributes: ["age"])
/// ```
///
/// Both calls return at once: the change is on disk, and is sent together with others, in order, until the server has
/// it or refuses it. A value that was sent already is not sent again for
/// ``HoldfastConfiguration/attributeRefreshInterval``.
public final class AttributeService: Sendable {
    /// The value that was sent last; `nil` when the attribute was taken away.
    private struct Sent: Codable {
        var value: AttributeValue?
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

    private static let cacheName = "attributes.cache"
    private static let writeInterval = Duration.seconds(30)
    /// Names of one user that are remembered.
    private static let namesOfUser = 1_000

    public init(client: HoldfastClient) {
        self.client = client
        let core = client.core
        var state = State(users: BoundedCache(capacity: core.configuration.cachedProfiles))
        for entry in core.cache.read(Self.cacheName, as: [Entry].self) ?? [] { state.users.set(Key(entry.userID), entry) }
        // What waits has been sent as far as the app is concerned.
        for case .attributes(let update) in core.waiting(.attributes) {
            Self.remember(update, core.clock.now.timeIntervalSince1970, &state)
        }
        self.state = Mutex(state)
        core.notices.observe { [weak self] in self?.settled($0) }
        core.beforeDestroy { [weak self] in self?.write() }
        core.start { [weak self, changed, core] in
            while !Task.isCancelled {
                await changed.wait()
                try? await core.clock.sleep(for: Self.writeInterval)
                self?.write()
            }
        }
    }

    /// Sets attributes and keeps the others.
    ///
    /// - Parameter userId: by default the client's current user; without one nothing is changed.
    public func update(attributes: [String: AttributeValue], userId: String? = nil) {
        guard let userID = userId ?? client.currentUser?.id else { return }
        send(AttributeUpdate(userID: userID, attributes: attributes, removed: []))
    }

    /// Takes attributes away.
    ///
    /// - Parameter userId: by default the client's current user; without one nothing is changed.
    public func delete(attributes names: [String], userId: String? = nil) {
        guard let userID = userId ?? client.currentUser?.id else { return }
        send(AttributeUpdate(userID: userID, attributes: [:], removed: names))
    }

    /// What becomes of changes, from now on: delivered, refused and why, or to be sent again.
    public func outcomes() -> AsyncStream<DeliveryNotice> {
        let (stream, continuation) = AsyncStream<DeliveryNotice>.makeStream(bufferingPolicy: .bufferingNewest(1_000))
        let token = client.core.notices.observe { notice in
            if case .attributes = notice.event { continuation.yield(notice) }
        }
        continuation.onTermination = { _ in token.cancel() }
        return stream
    }

    private func send(_ update: AttributeUpdate) {
        let core = client.core
        do throws(HoldfastError) {
            try HoldfastUser.check(id: update.userID)
        } catch {
            return core.notices.tell(DeliveryNotice(event: .attributes(update), outcome: .dropped(reason: "\(error)")))
        }
        let now = core.clock.now.timeIntervalSince1970
        let age = core.configuration.attributeRefreshInterval.inSeconds
        // Within the lock, so that changes are kept in the order in which they are remembered.
        let isNew = state.withLock { state in
            let sent = state.users.value(Key(update.userID))?.attributes ?? [:]
            func isKnown(_ name: String, _ value: AttributeValue?) -> Bool {
                guard let sent = sent[name], abs(now - sent.at) < age else { return false }
                return sent.value == value
            }
            var update = update
            update.attributes = update.attributes.filter { !isKnown($0.key, $0.value) }
            update.removed = update.removed.filter { !isKnown($0, nil) }
            guard !(update.attributes.isEmpty && update.removed.isEmpty), core.enqueue(.attributes(update)) else {
                return false
            }
            Self.remember(update, now, &state)
            return true
        }
        if isNew { changed.ring() }
    }

    private static func remember(_ update: AttributeUpdate, _ now: Double, _ state: inout State) {
        let key = Key(update.userID)
        var entry = state.users.value(key) ?? Entry(userID: update.userID, attributes: [:])
        for (name, value) in update.attributes { entry.attributes[name] = Sent(value: value, at: now) }
        for name in update.removed { entry.attributes[name] = Sent(value: nil, at: now) }
        if entry.attributes.count > namesOfUser { entry.attributes = [:] }
        state.users.set(key, entry)
        state.hasChanged = true
    }

    /// What was refused, or dropped to make room, the server does not have: the same value may be sent again.
    private func settled(_ notice: DeliveryNotice) {
        guard case .attributes(let update) = notice.event else { return }
        switch notice.outcome {
        case .refused: break
        case .dropped where notice.wasKept: break
        case .delivered, .dropped, .postponed: return
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
