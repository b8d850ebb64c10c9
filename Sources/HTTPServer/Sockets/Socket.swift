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

    /// Hands the kernel as many of the buffer's bytes as it takes.
    func send(_ buffer: inout ByteBuffer) throws(SystemError) -> SystemCall.Outcome {
        let descriptor = descriptor
        let outcome = try SystemCall.attempt("send") {
            buffer.withReadableBytes { bytes in
                csystem_send(descriptor, bytes.baseAddress, UInt(bytes.count))
            }
        }
        if case .done(let count) = outcome { buffer.consume(count) }
        return outcome
    }

    /// Turns a connection away for which there is no room, with an answer if the kernel takes it at once.
    func refuse(with answer: inout ByteBuffer) {
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
