import Chronology
import Dispatch
import Definitions
import HoldfastCore
import JSON
import Logging
import Storage
internal import Synchronization

/// Sends events to the receivers of webhooks, in order and at least once.
///
/// The events are entries of the audit log, and the position that each webhook has reached is stored with it. A timer
/// looks for webhooks that are due, and starts a delivery to each. A delivery sends one event after another until there
/// are no more, or an attempt fails; then the webhook is due again after a delay.
///
/// If several servers share a database, only one sends to a webhook at a time: the one that has a claim in the
/// database. It renews the claim with each event. A claim that is not renewed expires, so another server continues
/// after a crash.
public final class WebhookSender: Sendable {
    /// The state that the timer and the deliveries share.
    private struct State {
        /// The number of intervals since the start, or since ``wake()``.
        var ticks = 0
        /// The webhooks at the last query.
        var webhooks: [Webhook] = []
        /// The last entry of the audit log that this process has examined for a webhook, by the key of the webhook. It
        /// may be ahead of the stored position, which is not written while no entry is an event for the webhook.
        var examined: [String: Int64] = [:]
        /// The time of the event that this process is sending, by the key of the webhook.
        var sending: [String: Instant] = [:]
        /// The number of accepted and of failed deliveries of this process, by the key of the webhook.
        var accepted: [String: UInt64] = [:]
        var failed: [String: UInt64] = [:]
        var session: BackgroundSession?
    }

    /// The maximum number of webhooks to which a process sends at the same time.
    private static let sendLimit = 16
    /// The number of entries of the audit log that are read at once.
    private static let pageSize = 200
    /// The number of intervals between queries for webhooks while there is none. Another server may have created one.
    private static let quietTicks = 5
    /// The maximum delay after a failed attempt, in seconds.
    private static let longestDelay = 3_600.0
    /// The author of pauses in the audit log.
    private static let author = Author(name: "webhooks")

    private let store: any Store
    private let options: WebhookOptions
    private let logger: Logger
    /// Calls ``startDeliveries()`` once an interval, which is a second.
    private let timer = RepeatedTask(every: .seconds(1))
    private let state = Mutex(State())
    /// Runs the requests to receivers, which block. Tests of webhooks use it, too.
    private let sends = LimitedQueue(label: "webhooks", limit: sendLimit, qos: .utility)
    /// Identifies this process in claims.
    private let holder = String(UInt64.random(in: .min ... .max), radix: 16)
    /// The duration of a claim. A request takes at most half of it.
    private var claim: TimeSpan { TimeSpan(seconds: options.timeout * 2) }

    init(_ store: any Store, _ options: WebhookOptions, _ logger: Logger) {
        self.store = store
        self.options = options
        self.logger = logger
    }

    /// Starts to send events, until ``close()``.
    public func start() {
        let session: BackgroundSession
        do throws(StorageError) {
            session = try BackgroundSession(store, label: "webhooks", qos: .utility)
        } catch {
            logger.error("webhooks are not sent until the server is restarted", metadata: ["error": "\(error)"])
            return
        }
        state.withLock { $0.session = session }
        timer.start { [weak self] in await self?.startDeliveries() }
    }

    /// Stops sending. Call it before the store is closed.
    func close() {
        timer.close()
        let session = state.withLock { state in
            defer { state.session = nil }
            return state.session
        }
        session?.close()
    }

    /// Queries for webhooks soon, because one was created or changed.
    func wake() {
        state.withLock { $0.ticks = 0 }
    }

    // MARK: Status

    /// A fault of a webhook that an operator should repair; `nil` if there is none.
    var failure: String? {
        state.withLock { state in
            state.webhooks.first { $0.definition.isEnabled && $0.state.pause != nil }.map {
                "the webhook '\($0.key)' is paused: \($0.state.pause ?? "")"
            }
        }
    }

    /// The metrics of one webhook.
    struct Measure {
        let key: String
        let isPaused: Bool
        /// How long the oldest event has waited for its delivery; 0 if none waits.
        let lagSeconds: Double
        /// The number of accepted and of failed deliveries of this process.
        let accepted, failed: UInt64
    }

    /// Returns the metrics of the webhooks at the last query.
    func measures() -> [Measure] {
        let now = store.clock.now()
        return state.withLock { state in
            state.webhooks.filter(\.definition.isEnabled).map { webhook in
                let since = [webhook.state.pendingSince, state.sending[webhook.key]].compactMap(\.self).min()
                return Measure(
                    key: webhook.key, isPaused: webhook.state.pause != nil,
                    lagSeconds: since.map { max(.zero, now - $0).inSeconds } ?? 0,
                    accepted: state.accepted[webhook.key] ?? 0, failed: state.failed[webhook.key] ?? 0)
            }
        }
    }

    // MARK: Sending

    /// Starts a delivery to each webhook that is due and for which the audit log has an event. The timer calls this
    /// once an interval.
    private func startDeliveries() async {
        let (isDue, session) = state.withLock { state in
            defer { state.ticks += 1 }
            return (!state.webhooks.isEmpty || state.ticks % Self.quietTicks == 0, state.session)
        }
        guard isDue, let session else { return }
        guard
            let webhooks = try? await session.run({ session throws(StorageError) in try await session.read(.webhooks) })
        else { return }
        let due = dueWebhooks(among: webhooks)
        let positions = state.withLock { state in due.map { max($0.state.position, state.examined[$0.key] ?? 0) } }
        // One query serves all webhooks, from the one that is furthest behind.
        guard let first = positions.min(),
            let entries = try? await session.run({ session throws(StorageError) in
                try await session.read(.auditTail(after: first, limit: Self.pageSize))
            }), !entries.isEmpty
        else { return }
        for (webhook, position) in zip(due, positions) {
            guard beginDelivery(to: webhook, after: position, entries) else { continue }
            session.start { session in
                do throws(StorageError) {
                    try await self.deliver(webhook.key, after: position, session)
                } catch {
                    // The claim expires, and the next interval tries again. Readiness reports failures of the store.
                }
                self.state.withLock { _ = $0.sending.removeValue(forKey: webhook.key) }
            }
        }
    }

    /// Keeps the webhooks for ``measures()``, and returns the webhooks to which this process may send now.
    private func dueWebhooks(among webhooks: [Webhook]) -> [Webhook] {
        let now = store.clock.now()
        return state.withLock { state in
            state.webhooks = webhooks
            let keys = Set(webhooks.map(\.key))
            state.examined = state.examined.filter { keys.contains($0.key) }
            return webhooks.filter { webhook in
                let isActive = webhook.definition.isEnabled && webhook.state.pause == nil
                let isClaimedElsewhere =
                    webhook.state.holder != nil && webhook.state.holder != holder && webhook.state.heldUntil > now
                return isActive && webhook.state.nextAttempt <= now && !isClaimedElsewhere
                    && state.sending[webhook.key] == nil
            }
        }
    }

    /// Notes that this process sends to a webhook, if one of the entries is an event for it.
    ///
    /// - Parameter position: the last entry that was examined for the webhook.
    /// - Returns: whether the delivery begins. It does not while too many are in progress.
    private func beginDelivery(to webhook: Webhook, after position: Int64, _ entries: [AuditEntry]) -> Bool {
        let next = entries.first { $0.id > position && webhook.definition.wants($0) }
        return state.withLock { state in
            guard let next else {
                state.examined[webhook.key] = max(position, entries.last?.id ?? position)
                return false
            }
            guard state.sending.count < Self.sendLimit else { return false }
            state.sending[webhook.key] = next.recordedAt
            return true
        }
    }

    /// Delivers events to a webhook, until there are no more or an attempt fails.
    ///
    /// - Parameter start: the last entry that was examined for the webhook.
    private func deliver(_ key: String, after start: Int64, _ session: any StoreSession) async throws(StorageError) {
        guard var webhook = try await session.write(.claimWebhook(key, by: holder, for: claim)) else { return }
        var position = max(webhook.state.position, start)
        while !timer.isClosed {
            let entries = try await session.read(.auditTail(after: position, limit: Self.pageSize))
            guard !entries.isEmpty else { break }
            for entry in entries {
                guard webhook.definition.wants(entry) else {
                    position = entry.id
                    continue
                }
                // Ends both loops, because the outer one has the same condition. The reached position is still stored.
                guard !timer.isClosed else { break }
                state.withLock { $0.sending[key] = entry.recordedAt }
                guard let next = try await attempt(entry, webhook, session) else { return }
                webhook = next
                position = entry.id
            }
        }
        _ = try await session.write(
            .advanceWebhook(key, by: holder, for: .zero) { [position] state, _ in
                state.position = position
                state.holder = nil
                state.heldUntil = .epoch
            })
    }

    /// Sends an event once, and stores the outcome with the webhook.
    ///
    /// - Returns: the webhook if the delivery may continue; `nil` if the attempt failed, if another server has the
    ///   claim, or if the webhook was changed.
    private func attempt(
        _ entry: AuditEntry, _ webhook: Webhook, _ session: any StoreSession
    ) async throws(StorageError) -> Webhook? {
        let message = WebhookMessage(entry, webhook.definition.format, publicURL: options.publicURL)
        let response = await send(message, to: webhook.definition)
        let delivery = Webhook.Delivery(
            eventID: message.id, event: message.event, attemptedAt: store.clock.now(), status: response.status,
            failure: response.failure)
        guard let failure = response.failure else {
            return try await storeSuccess(delivery, of: entry, webhook, session)
        }
        try await storeFailure(failure, delivery, of: entry, webhook, session)
        return nil
    }

    /// Stores that the receiver has accepted an event, and renews the claim.
    ///
    /// - Returns: the webhook if the delivery may continue.
    private func storeSuccess(
        _ delivery: Webhook.Delivery, of entry: AuditEntry, _ webhook: Webhook, _ session: any StoreSession
    ) async throws(StorageError) -> Webhook? {
        state.withLock { $0.accepted[webhook.key, default: 0] += 1 }
        return try await session.write(
            .advanceWebhook(webhook.key, by: holder, for: claim) { state, _ in
                state.position = entry.id
                state.failures = 0
                state.failingSince = nil
                state.nextAttempt = .epoch
                state.pendingSince = nil
                state.add(delivery)
            })
    }

    /// Stores when the event is sent again. Pauses the webhook if its receiver has failed for too long, or is gone
    /// (410).
    private func storeFailure(
        _ failure: String, _ delivery: Webhook.Delivery, of entry: AuditEntry, _ webhook: Webhook,
        _ session: any StoreSession
    ) async throws(StorageError) {
        state.withLock { $0.failed[webhook.key, default: 0] += 1 }
        let period = TimeSpan(seconds: options.retryPeriod)
        // Reduces the delay by up to a half, so that webhooks that failed together are not tried again together.
        let jitter = Double.random(in: 0.5...1)
        let isGone = delivery.status == 410
        let reason = isGone ? "the receiver responds 410, which means that it is gone" : failure
        let changed = try await session.write(
            .advanceWebhook(
                webhook.key, by: holder, for: claim,
                noting: AuditNote(
                    .webhookPause, of: webhook.key, after: ["reason": .string(reason)], in: webhook.sdkKey),
                author: Self.author
            ) { state, now in
                let since = state.failingSince ?? now
                state.failingSince = since
                state.failures += 1
                state.pendingSince = entry.recordedAt
                state.nextAttempt = now + TimeSpan(seconds: Self.delay(afterFailures: state.failures) * jitter)
                if isGone || state.nextAttempt - since > period { state.pause = reason }
                state.holder = nil
                state.heldUntil = .epoch
                state.add(delivery)
            })
        if let changed { log(failure, reason, of: changed) }
    }

    /// Logs the first failure and a pause. Further failures are not logged, so that a receiver that is away does not
    /// fill the log.
    ///
    /// - Parameter pauseReason: the reason of the pause, if the webhook is paused.
    private func log(_ failure: String, _ pauseReason: String, of webhook: Webhook) {
        if webhook.state.pause != nil {
            logger.error(
                "a webhook is paused: its receiver has accepted nothing for too long",
                metadata: ["webhook": "\(webhook.key)", "reason": "\(pauseReason)"])
        } else if webhook.state.failures == 1 {
            logger.warning(
                "the receiver of a webhook does not accept an event, which is tried again",
                metadata: ["webhook": "\(webhook.key)", "reason": "\(failure)"])
        }
    }

    /// Returns the delay before the next attempt in seconds: 1, 2, 4 and so on, up to ``longestDelay``.
    ///
    /// - Parameter failures: the number of failed attempts in succession, at least 1.
    private static func delay(afterFailures failures: Int64) -> Double {
        // The shift is limited so that it does not overflow. 2^20 seconds are longer than the longest delay.
        min(longestDelay, Double(1 << min(failures - 1, 20)))
    }

    /// Sends a message without blocking the caller's executor.
    func send(_ message: WebhookMessage, to definition: Webhook.Definition) async -> WebhookResponse {
        let seconds = store.clock.now().secondsSince1970
        let (keys, problem) = keys(of: definition)
        if let problem { return WebhookResponse(status: 0, failure: problem) }
        guard let send = options.send else {
            return WebhookResponse(status: 0, failure: "this server cannot send webhooks")
        }
        let request = WebhookRequest(
            url: definition.url, fields: WebhookSignature.fields(message, at: seconds, keys: keys),
            body: message.body, seconds: options.timeout, allowsPrivateAddresses: options.allowsPrivateAddresses)
        var response = await sends.run { send(request) }
        if response.status >= 300 || response.status == 0 {
            let redirect = (300..<400).contains(response.status) ? ", which is not followed" : ""
            response.failure = response.failure ?? "the receiver must respond 2xx; got \(response.status)\(redirect)"
        } else {
            response.failure = nil
        }
        return response
    }

    /// Returns the keys for signatures; without keys, the reason.
    private func keys(of definition: Webhook.Definition) -> (keys: [[UInt8]], problem: String?) {
        guard CryptographyLibrary.isInstalled else { return ([], "signatures need libcrypto: apt-get install libssl3") }
        let now = store.clock.now()
        guard let file = definition.secretFile else {
            let valid = definition.secrets.filter { $0.until.map { $0 > now } ?? true }
            return (valid.compactMap { WebhookSignature.key($0.text) }, nil)
        }
        guard let read = options.readSecrets else {
            return ([], "the secret '\(file)' needs the option --webhook-secrets")
        }
        do {
            let secrets = try read(file)
            let keys = secrets.compactMap { WebhookSignature.key($0) }
            guard !keys.isEmpty, keys.count == secrets.count else {
                return ([], "each line of the secret '\(file)' must be 'whsec_' and 24 to 64 bytes in base64")
            }
            return (keys, nil)
        } catch {
            return ([], "\(error)")
        }
    }
}

extension Webhook.Definition {
    /// Whether the webhook gets an entry of the audit log.
    func wants(_ entry: AuditEntry) -> Bool {
        (sdkKey == nil || sdkKey == entry.sdkKey) && WebhookEvent.names.contains(entry.action)
            && events.contains { WebhookEvent.matches($0, entry.action) }
    }
}
