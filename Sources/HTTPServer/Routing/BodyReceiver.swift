/// Takes the body of one request piece by piece, on the connection's event loop, so that it may be of any length.
public protocol BodyReceiver: AnyObject {
    /// The next piece; lent for the call.
    ///
    /// - Returns: whether more is welcome now. After `false`, reading goes on with ``Responder/resumeReading()``.
    func received(_ bytes: UnsafeRawBufferPointer) -> Bool

    /// The body is complete.
    func ended()

    /// The connection was lost, the client too slow, or the coding broken; nothing more will come.
    func aborted()
}
