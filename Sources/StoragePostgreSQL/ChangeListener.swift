import CPostgreSQL
import Dispatch
import Storage
import Synchronization

/// A connection that listens for changes of projects by any server. Every transaction that changes projects sends a
/// notification when it commits (<https://www.postgresql.org/docs/15/sql-notify.html>).
///
/// If the connection is lost, another connection is opened after a pause.
final class ChangeListener: ProjectWatch, @unchecked Sendable {
    // Safe: mutable state is used on the executor only.
    private let configuration: PostgreSQLConfiguration
    /// Called after notifications, and after each new connection, which may have missed some.
    private let changed: @Sendable () -> Void
    /// An executor of its own, because connecting blocks.
    private let executor = DispatchExecutor(label: "postgresql-listener")
    /// Whether the connection listens at present.
    private let listens = Atomic<Bool>(false)
    private let isCancelled = Atomic<Bool>(false)
    /// The connection; `nil` while there is none.
    private var handle: Handle?
    /// The timeline of the server that sends the notifications.
    private let timeline = Mutex<Cluster.Timeline?>(nil)
    /// Calls `receive` at input of the socket; `nil` while there is no connection.
    private var watch: (any DescriptorWatch)?
    /// When the next attempt to connect may start.
    private var schedule = ReconnectSchedule()

    /// The pause in nanoseconds after a server has refused to listen, as a standby does.
    private static let refusalPause = 10_000_000_000 as UInt64

    init(_ configuration: PostgreSQLConfiguration, _ changed: @escaping @Sendable () -> Void) {
        self.configuration = configuration
        self.changed = changed
        executor.submit { [weak self] in self?.listen() }
    }

    var isActive: Bool {
        guard listens.load(ordering: .acquiring) else { return false }
        guard configuration.cluster.hasLeftBehind(timeline.withLock { $0 }) else { return true }
        executor.submit { [weak self] in self?.leave() }
        return false
    }

    /// Leaves a server that is no longer the primary, and listens to the new primary.
    private func leave() {
        guard configuration.cluster.hasLeftBehind(handle?.timeline) else { return }
        hangUp()
        listen()
    }

    func cancel() {
        isCancelled.store(true, ordering: .releasing)
        listens.store(false, ordering: .releasing)
        executor.submit { [weak self] in self?.hangUp() }
    }

    /// Connects and listens. After a failure, schedules the next attempt.
    private func listen() {
        guard !isCancelled.load(ordering: .acquiring) else { return }
        do throws(PostgreSQLError) {
            let handle = try Connector.open(configuration)
            guard !configuration.usesPooler else {
                throw PostgreSQLError(
                    state: PostgreSQLError.unsupported, message: "a pooler passes no notifications on")
            }
            try handle.query(ProjectStateRow.listen, within: Connector.watchPatience)
            watch = try watch(handle)
            self.handle = handle
            timeline.withLock { $0 = handle.timeline }
            schedule.succeeded()
            listens.store(true, ordering: .releasing)
            // Projects may have changed before the connection listened.
            changed()
        } catch {
            let now = DispatchTime.now().uptimeNanoseconds
            schedule.failed(error, at: now, jitter: .random(in: 0...1))
            // The server cannot be reached, or it is starting or stopping (57P); otherwise it has refused.
            let pause =
                error.state.isEmpty || error.state.hasPrefix("57P") ? schedule.earliest &- now : Self.refusalPause
            DispatchQueue.global().asyncAfter(deadline: .now() + .nanoseconds(Int(clamping: pause))) { [weak self] in
                guard let self else { return }
                executor.submit { [weak self] in self?.listen() }
            }
        }
    }

    /// Watches the socket of a connection for input.
    private func watch(_ handle: Handle) throws(PostgreSQLError) -> any DescriptorWatch {
        do throws(StorageError) {
            return try executor.watch(PQsocket(handle.pointer)) { [weak self] in self?.receive() }
        } catch {
            throw PostgreSQLError(connection: error.description)
        }
    }

    /// Handles input of the socket.
    private func receive() {
        guard let handle else { return }
        guard PQconsumeInput(handle.pointer) == 1, PQstatus(handle.pointer) == CONNECTION_OK else {
            hangUp()
            return listen()
        }
        if handle.takeNotifications() { changed() }
    }

    /// Closes the connection.
    private func hangUp() {
        listens.store(false, ordering: .releasing)
        watch?.cancel()
        watch = nil
        handle = nil
    }
}
