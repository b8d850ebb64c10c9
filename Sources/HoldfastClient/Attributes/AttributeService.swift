import Foundation
import Synchronization

/// Stores user attributes on the server, for audiences and segments.
///
/// ```swift
/// let attributes = AttributeService(client: client)
/// attributes.update(attributes: ["country": "de", "age": 30])
/// attributes.delete(attributes: ["age"])
/// ```
///
/// Both calls queue the change on disk and return at once. Changes are sent in order and in batches. An unchanged value
/// is not sent again for ``HoldfastConfiguration/attributeRefreshInterval``.
public final class AttributeService: Sendable {
    /// The last value sent; `nil` if the attribute was deleted.
    private struct Sent: Codable {
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

    private static let cacheName = "attributes.cache"
    private static let writeInterval = Duration.seconds(30)
    /// Maximum number of remembered attributes per user.
    private static let namesOfUser = 1_000

    public init(client: HoldfastClient) {
        self.client = client
        let core = client.core
        var state = State(users: BoundedCache(capacity: core.configuration.cachedProfiles))
        for entry in core.cache.read(Self.cacheName, as: [Entry].self) ?? [] { state.users.set(Key(entry.userID), entry) }
        // Queued events count as sent.
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

    /// Sets attributes and keeps all others.
    ///
    /// - Parameter userID: by default the client's current user; without one the call does nothing.
    public func update(attributes: [String: UserAttributeValue], userID: String? = nil) {
        guard let userID = userID ?? client.currentUser?.id else { return }
        send(AttributeEvent(userID: userID, attributes: attributes, removed: []))
    }

    /// Deletes attributes.
    ///
    /// - Parameter userID: by default the client's current user; without one the call does nothing.
    public func delete(attributes names: [String], userID: String? = nil) {
        guard let userID = userID ?? client.currentUser?.id else { return }
        send(AttributeEvent(userID: userID, attributes: [:], removed: names))
    }

    /// Returns a stream of the delivery outcomes of attribute changes.
    public func outcomes() -> AsyncStream<DeliveryNotice> {
        let (stream, continuation) = AsyncStream<DeliveryNotice>.makeStream(bufferingPolicy: .bufferingNewest(1_000))
        let token = client.core.notices.observe { notice in
            if case .attributes = notice.event { continuation.yield(notice) }
        }
        continuation.onTermination = { _ in token.cancel() }
        return stream
    }

    private func send(_ update: AttributeEvent) {
        let core = client.core
        do throws(HoldfastError) {
            try HoldfastUser.check(id: update.userID)
        } catch {
            return core.notices.notify(DeliveryNotice(event: .attributes(update), outcome: .dropped(reason: "\(error)")))
        }
        let now = core.clock.now.timeIntervalSince1970
        let age = core.configuration.attributeRefreshInterval.inSeconds
        // Inside the lock, so that the queue has the order of the calls.
        let isNew = state.withLock { state in
            let sent = state.users.value(Key(update.userID))?.attributes ?? [:]
            func isKnown(_ name: String, _ value: UserAttributeValue?) -> Bool {
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

    private static func remember(_ update: AttributeEvent, _ now: Double, _ state: inout State) {
        let key = Key(update.userID)
        var entry = state.users.value(key) ?? Entry(userID: update.userID, attributes: [:])
        for (name, value) in update.attributes { entry.attributes[name] = Sent(value: value, at: now) }
        for name in update.removed { entry.attributes[name] = Sent(value: nil, at: now) }
        if entry.attributes.count > namesOfUser { entry.attributes = [:] }
        state.users.set(key, entry)
        state.hasChanged = true
    }

    /// Forgets values that the server refused or that were dropped, so that the same value is sent again.
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
