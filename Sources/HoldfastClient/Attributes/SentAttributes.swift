import Foundation

/// The attributes of users that a client has sent, so that an unchanged value is not sent again.
///
/// All ``AttributeService`` of a client share one instance: a value that one service has sent is not sent by another.
/// A value counts as sent once it is queued. If the server refuses it, or the queue drops it, it is forgotten.
final class SentAttributes: Sendable {
    /// The last change of an attribute.
    private struct Sent: Codable {
        /// The value that was sent; `nil` if the attribute was deleted.
        var value: UserAttributeValue?
        /// When it was sent, in seconds since 1970.
        var at: Double
    }

    /// The attributes of a user, by name.
    private struct Entry: Codable {
        var userID: String
        var attributes: [String: Sent]
    }

    private struct State {
        var users: BoundedCache<Entry>
        /// Whether the cache differs from its file.
        var hasChanged = false
    }

    private let core: ClientCore
    private let state: Locked<State>
    /// Rung when the cache differs from its file, which is then written after a delay.
    private let cacheChanged = Signal()
    private let whenStored: @Sendable (_ userID: String) -> Void
    private let registrations = OwnedTokens()

    private static let cacheName = "attributes.cache"
    /// The maximum number of remembered attributes per user. Beyond it only the last change is remembered.
    private static let maximumNames = 1_000

    /// - Parameter whenStored: called when the server has stored attributes of a user.
    init(core: ClientCore, whenStored: @escaping @Sendable (_ userID: String) -> Void) {
        self.core = core
        self.whenStored = whenStored
        var state = State(users: BoundedCache(capacity: core.configuration.cachedProfiles))
        for entry in core.cache.read(Self.cacheName, as: [Entry].self) ?? [] {
            state.users.set(Key(entry.userID), entry)
        }
        // Queued events count as sent.
        for case .attributes(let update) in core.waiting(.attributes) {
            Self.remember(update, core.clock.now.timeIntervalSince1970, &state)
        }
        self.state = Locked(state)
        registrations.add(core.notices.observe { [weak self] in self?.follow($0) })
        registrations.add(core.whenSaving(after: cacheChanged) { [weak self] in self?.write() })
    }

    /// Returns the attributes of a user that this client has set.
    func attributes(of userID: String) -> [String: UserAttributeValue] {
        state.withLock { $0.users.value(Key(userID))?.attributes ?? [:] }.compactMapValues(\.value)
    }

    /// Forgets all values that were sent.
    func reset() {
        state.withLock { state in
            state.users = BoundedCache(capacity: core.configuration.cachedProfiles)
            state.hasChanged = true
        }
        cacheChanged.ring()
    }

    /// Queues the attributes whose values were not sent, or were sent longer ago than the refresh interval.
    ///
    /// - Throws: ``HoldfastError`` if they cannot be queued.
    func send(_ update: AttributeEvent) throws(HoldfastError) {
        let now = core.clock.now.timeIntervalSince1970
        let age = core.configuration.attributeRefreshInterval.inSeconds
        // Queued inside the lock, so that the queue has the order of the calls.
        let queued = try state.withLock { state throws(HoldfastError) -> AttributeEvent? in
            let sent = state.users.value(Key(update.userID))?.attributes ?? [:]
            func isSent(_ name: String, _ value: UserAttributeValue?) -> Bool {
                // The difference may be negative, because the clock may have been set back.
                guard let sent = sent[name], abs(now - sent.at) < age else { return false }
                return sent.value == value
            }
            var changes = update
            changes.attributes = update.attributes.filter { !isSent($0.key, $0.value) }
            changes.removed = update.removed.filter { !isSent($0, nil) }
            guard !(changes.attributes.isEmpty && changes.removed.isEmpty) else { return nil }
            try core.add(.attributes(changes))
            Self.remember(changes, now, &state)
            return changes
        }
        guard let queued else { return }
        cacheChanged.ring()
        if core.configuration.logger != nil, let json = try? HoldfastServer.encode(queued) {
            core.log(.trace, "attributes queued", ["update": String(decoding: json, as: UTF8.self)])
        }
    }

    /// Notes a change as sent.
    private static func remember(_ update: AttributeEvent, _ now: Double, _ state: inout State) {
        let key = Key(update.userID)
        var entry = state.users.value(key) ?? Entry(userID: update.userID, attributes: [:])
        for (name, value) in update.attributes { entry.attributes[name] = Sent(value: value, at: now) }
        for name in update.removed { entry.attributes[name] = Sent(value: nil, at: now) }
        if entry.attributes.count > maximumNames {
            let names = Set(update.attributes.keys).union(update.removed)
            entry.attributes = entry.attributes.filter { names.contains($0.key) }
        }
        state.users.set(key, entry)
        state.hasChanged = true
    }

    /// Forgets values that the server refused or that were dropped, so that the same value is sent again.
    private func follow(_ notice: DeliveryNotice) {
        guard case .attributes(let update) = notice.event else { return }
        switch notice.outcome {
        case .delivered: return whenStored(update.userID)
        case .refused: break
        case .dropped where notice.wasKept: break
        // A value that the queue did not take was never noted as sent. A postponed value is still queued.
        case .dropped, .postponed: return
        }
        state.withLock { state in
            guard var entry = state.users.value(Key(update.userID)) else { return }
            // A later change of the same attribute may be noted already, and stays.
            for name in Array(update.attributes.keys) + update.removed
            where entry.attributes[name]?.value == update.attributes[name] {
                entry.attributes[name] = nil
            }
            state.users.set(Key(update.userID), entry)
            state.hasChanged = true
        }
    }

    /// Writes the cache file if the cache has changed. A destroyed client no longer owns the directory.
    private func write() {
        let entries = state.withLock { state -> [Entry]? in
            guard state.hasChanged, !core.isDestroyed else { return nil }
            state.hasChanged = false
            return state.users.all.map(\.value)
        }
        if let entries { core.cache.write(Self.cacheName, entries) }
    }
}
