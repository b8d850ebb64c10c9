/// Takes the body of one request piece by piece, on the connection's event loop, so that it may be of any length.
public protocol BodyReceiver: AnyObject {
    /// Bytes of the body that it keeps until more has come, which count as ``Limits/unfinishedBodyBytes``.
    var heldBytes: Int { get }

    /// The next piece; lent for the call.
    ///
    /// - Returns: whether more is welcome now. After `false`, reading goes on with ``Responder/resumeReading()``.
    func received(_ bytes: UnsafeRawBufferPointer) -> Bool

    /// The body is complete.
    func ended()

    /// The connection was lost, the client too slow, or the coding broken; nothing more will come.
    func aborted()
}
