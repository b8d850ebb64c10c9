internal import CSystem
import Glibc

/// A descriptor of a non-blocking stream socket; whoever holds it closes it.
struct Socket {
    let descriptor: Int32

    /// Reads what is there into the free part of the buffer.
    ///
    /// - Returns: the number of bytes read, 0 at the end of the stream.
    func receive(into buffer: inout ByteBuffer, atMost limit: Int) throws(SystemError) -> SystemCall.Outcome {
        let descriptor = descriptor
        let outcome = try SystemCall.attempt("recv") {
            buffer.withWritableBytes { free in
                recv(descriptor, free.baseAddress, min(free.count, limit), 0)
            }
        }
        if case .done(let count) = outcome { buffer.commit(count) }
        return outcome
    }

    /// Hands the kernel as many of the queue's bytes as it takes.
    func send(_ output: inout OutputQueue) throws(SystemError) -> SystemCall.Outcome {
        var sent = 0
        repeat {
            let (outcome, offered) = try sendNextPieces(output)
            guard case .done(let count) = outcome else { return sent > 0 ? .done(sent) : outcome }
            output.consume(count)
            sent += count
            if count < offered { break }
        } while !output.isEmpty
        return .done(sent)
    }

    private func sendNextPieces(
        _ output: borrowing OutputQueue
    ) throws(SystemError) -> (outcome: SystemCall.Outcome, offered: Int) {
        let descriptor = descriptor
        var offered = 0
        let outcome = try SystemCall.attempt("send") {
            output.withNextPieces { first, large, last in
                offered = first.count + large.count + last.count
                if large.isEmpty { return csystem_send(descriptor, first.baseAddress, UInt(first.count)) }
                return Self.send([first, large, last], to: descriptor)
            }
        }
        return (outcome, offered)
    }

    /// Sends several pieces with one call.
    private static func send(_ pieces: [UnsafeRawBufferPointer], to descriptor: Int32) -> Int {
        var vectors = pieces.map { iovec(iov_base: UnsafeMutableRawPointer(mutating: $0.baseAddress), iov_len: $0.count) }
        return vectors.withUnsafeMutableBufferPointer { vectors in
            var message = msghdr()
            message.msg_iov = vectors.baseAddress
            message.msg_iovlen = vectors.count
            return sendmsg(descriptor, &message, Int32(MSG_NOSIGNAL))
        }
    }

    /// Turns a connection away for which there is no room, with an answer if the kernel takes it at once.
    func refuse(with answer: inout OutputQueue) {
        _ = try? send(&answer)
        finishSending()
        // Bytes that stay unread would make the kernel reset the connection before the peer has read the answer.
        withUnsafeTemporaryAllocation(byteCount: 16 * 1024, alignment: 1) { bytes in
            _ = recv(descriptor, bytes.baseAddress, bytes.count, 0)
        }
        close()
    }

    /// Tells the peer that no more will be sent.
    func finishSending() {
        _ = shutdown(descriptor, Int32(SHUT_WR))
    }

    func close() {
        _ = Glibc.close(descriptor)
    }

    func set(_ level: Int32, _ option: Int32, to value: Int32) throws(SystemError) {
        var value = value
        try SystemCall.check("setsockopt") {
            setsockopt(descriptor, level, option, &value, socklen_t(MemoryLayout<Int32>.size))
        }
    }
}
