import CPostgreSQL
import Dispatch
import Storage
import Synchronization

/// A connection that waits for notifications: every transaction that changes projects sends one with its commit,
/// <https://www.postgresql.org/docs/15/sql-notify.html>.
final class ChangeListener: ProjectWatch, @unchecked Sendable {
    // Safe: mutable state is used on the queue only.
    private let configuration: PostgreSQLConfiguration
    private let changed: @Sendable () -> Void
    /// Its own, as connecting blocks.
    private let queue = DispatchQueue(label: "postgresql-listener", qos: .userInitiated)
    private let listens = Atomic<Bool>(false)
    private let isCancelled = Atomic<Bool>(false)
    private var source: (any DispatchSourceRead)?
    private var schedule = ReconnectSchedule()

    /// After the server has refused to notify, as a standby does.
    private static let refusalPause = 10_000_000_000 as UInt64

    init(_ configuration: PostgreSQLConfiguration, _ changed: @escaping @Sendable () -> Void) {
        self.configuration = configuration
        self.changed = changed
        queue.async { [weak self] in self?.listen() }
    }

    var isActive: Bool { listens.load(ordering: .acquiring) }

    func cancel() {
        isCancelled.store(true, ordering: .releasing)
        listens.store(false, ordering: .releasing)
        queue.async { [weak self] in self?.hangUp() }
    }

    private func listen() {
        guard !isCancelled.load(ordering: .acquiring) else { return }
        do throws(PostgreSQLError) {
            let handle = try Connector.open(configuration)
            try handle.execute("LISTEN \(ProjectStateRow.channel)")
            let source = DispatchSource.makeReadSource(fileDescriptor: PQsocket(handle.pointer), queue: queue)
            source.setEventHandler { [weak self] in self?.receive(handle) }
            // The connection is closed when nothing watches its descriptor any more.
            source.setCancelHandler { withExtendedLifetime(handle) {} }
            source.resume()
            self.source = source
            schedule.succeeded()
            listens.store(true, ordering: .releasing)
            // What has changed before it listened.
            changed()
        } catch {
            let now = DispatchTime.now().uptimeNanoseconds
            schedule.failed(error, at: now, jitter: .random(in: 0...1))
            let pause = error.state.isEmpty ? schedule.earliest &- now : Self.refusalPause
            queue.asyncAfter(deadline: .now() + .nanoseconds(Int(clamping: pause))) { [weak self] in self?.listen() }
        }
    }

    private func receive(_ handle: Handle) {
        guard PQconsumeInput(handle.pointer) == 1, PQstatus(handle.pointer) == CONNECTION_OK else {
            hangUp()
            return listen()
        }
        var isNotified = false
        while let notification = PQnotifies(handle.pointer) {
            PQfreemem(notification)
            isNotified = true
        }
        if isNotified { changed() }
    }

    private func hangUp() {
        listens.store(false, ordering: .releasing)
        source?.cancel()
        source = nil
    }
}
