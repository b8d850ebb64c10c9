internal import CSystem
import Glibc

/// An epoll instance (epoll(7)).
///
/// Each descriptor is added with a token, and its events carry the token. The kernel reuses descriptors, but no token
/// is used twice, so an event of a closed connection is not mistaken for one of a newer connection.
struct Selector {
    /// The state of a descriptor for which the selector has waited.
    struct Event {
        let token: UInt64
        let isReadable: Bool
        let isWritable: Bool
        /// Whether the connection is broken: the peer has reset it, or both sides are shut down.
        let hasHungUp: Bool
    }

    private let descriptor: Int32
    private var buffer: [csystem_event]

    init(eventsPerWait: Int = 256) throws(SystemError) {
        descriptor = try SystemCall.check("epoll_create") { csystem_epoll_create() }
        buffer = Array(repeating: csystem_event(), count: eventsPerWait)
    }

    func close() {
        _ = Glibc.close(descriptor)
    }

    private func mask(reading: Bool, writing: Bool) -> UInt32 {
        (reading ? csystem_epoll_in : 0) | (writing ? csystem_epoll_out : 0)
    }

    func add(_ descriptor: Int32, token: UInt64, reading: Bool = true, writing: Bool = false) throws(SystemError) {
        try SystemCall.check("epoll_ctl") {
            csystem_epoll_add(self.descriptor, descriptor, mask(reading: reading, writing: writing), token)
        }
    }

    func modify(_ descriptor: Int32, token: UInt64, reading: Bool, writing: Bool) throws(SystemError) {
        try SystemCall.check("epoll_ctl") {
            csystem_epoll_modify(self.descriptor, descriptor, mask(reading: reading, writing: writing), token)
        }
    }

    func remove(_ descriptor: Int32) {
        _ = csystem_epoll_remove(self.descriptor, descriptor)
    }

    /// Waits for events.
    ///
    /// - Parameter milliseconds: the longest time to wait; -1 for no limit.
    /// - Returns: the number of events for ``event(_:)``.
    mutating func wait(milliseconds: Int32) throws(SystemError) -> Int {
        let descriptor = descriptor
        var result: Int32
        repeat {
            result = buffer.withUnsafeMutableBufferPointer {
                csystem_epoll_wait(descriptor, $0.baseAddress, Int32($0.count), milliseconds)
            }
            // An interrupted wait is repeated only if it has no limit. With one, the waits together could exceed it.
        } while result < 0 && errno == EINTR && milliseconds < 0
        if result < 0, errno == EINTR { return 0 }
        guard result >= 0 else { throw SystemError(call: "epoll_wait", code: errno) }
        return Int(result)
    }

    /// Returns an event of the last ``wait(milliseconds:)``.
    @inline(__always)
    func event(_ index: Int) -> Event {
        let bits = buffer[index].events
        // A broken connection counts as readable, too: receiving from it returns the error.
        return Event(
            token: buffer[index].token,
            isReadable: bits & (csystem_epoll_in | csystem_epoll_hang_up | csystem_epoll_error) != 0,
            isWritable: bits & csystem_epoll_out != 0,
            hasHungUp: bits & (csystem_epoll_hang_up | csystem_epoll_error) != 0)
    }
}
