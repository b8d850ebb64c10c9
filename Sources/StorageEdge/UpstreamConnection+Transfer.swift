import CHTTPClient
import Dispatch
import Glibc
import Storage

/// The call of libcurl: one transfer with its callbacks.
extension UpstreamConnection {
    /// The state that the callbacks of one exchange share.
    struct Exchange {
        /// The status of the response; 0 before its header.
        var status = 0
        var fields: [(name: String, value: String)] = []
        let cancellation: Cancellation
        /// When data last arrived, in monotonic nanoseconds.
        var receivedAt = DispatchTime.now().uptimeNanoseconds
        let shouldGiveUp: (_ receivedAt: UInt64) -> Bool
        /// Whether the request ended because ``shouldGiveUp`` returned `true`.
        var gaveUp = false
        /// When the request was sent; see ``UpstreamIdentity/sinceStart()``.
        let sentAt = UpstreamIdentity.sinceStart()
        let identity: UpstreamIdentity
        /// Whether the response comes from the upstream; `nil` until the header is complete and was checked.
        var origin: Result<Void, UpstreamError>?
        /// Receives a part of the body, and returns whether to continue.
        let receive: (_ status: Int, UnsafeRawBufferPointer) -> Bool
    }

    /// Performs a request with libcurl, whose callbacks get the ``Exchange``.
    ///
    /// - Parameter error: receives the reason of a failure.
    /// - Returns: the status of the response; 0 if nothing was sent, negative if there was no complete response.
    func transfer(
        _ request: Request, _ client: OpaquePointer, _ exchange: UnsafeMutableRawPointer, _ error: inout [CChar]
    ) -> Int {
        // An empty `Expect` prevents curl from waiting for `100 Continue` before it sends a large body.
        let all =
            request.fields + ["Expect:", "\(EdgeFields.edge): 1"]
            + (request.hasToken ? identity.authorization.map { [$0] } ?? [] : [])
        var fields: [UnsafePointer<CChar>?] = all.map { UnsafePointer(strdup($0)) } + [nil]
        defer { for field in fields { free(UnsafeMutablePointer(mutating: field)) } }
        let body = request.body ?? []
        return request.method.withCString { method in
            (url + request.path).withCString { url in
                fields.withUnsafeMutableBufferPointer { fields in
                    body.withUnsafeBufferPointer { bytes in
                        // An empty array has no address; a request with an empty body has one.
                        var none: UInt8 = 0
                        return withUnsafePointer(to: &none) { none in
                            var parameters = http_request()
                            parameters.method = method
                            parameters.url = url
                            parameters.fields = UnsafePointer(fields.baseAddress)
                            if request.body != nil { parameters.body = bytes.baseAddress ?? none }
                            parameters.length = bytes.count
                            parameters.connect_milliseconds = Int(connectSeconds * 1_000)
                            // 0 means that there is no limit.
                            parameters.milliseconds = request.seconds.map { Int($0 * 1_000) } ?? 0
                            parameters.idle_seconds = request.idleSeconds ?? 0
                            parameters.is_sent_once = request.isSentOnce ? 1 : 0
                            parameters.context = exchange
                            Self.setCallbacks(of: &parameters)
                            return http_client_perform(client, &parameters, &error)
                        }
                    }
                }
            }
        }
    }

    /// Sets the functions that libcurl calls during a transfer. C functions capture nothing, so they get the
    /// ``Exchange`` as their context.
    private static func setCallbacks(of parameters: inout http_request) {
        parameters.receive = { context, bytes, length in
            guard let exchange = context?.assumingMemoryBound(to: Exchange.self) else { return 0 }
            exchange.pointee.receivedAt = DispatchTime.now().uptimeNanoseconds
            guard exchange.pointee.checkOrigin() else { return 0 }
            let piece = UnsafeRawBufferPointer(start: bytes, count: length)
            return exchange.pointee.receive(exchange.pointee.status, piece) ? 1 : 0
        }
        parameters.receive_field = { context, bytes, length in
            guard let exchange = context?.assumingMemoryBound(to: Exchange.self) else { return }
            let line = UnsafeRawBufferPointer(start: bytes, count: length)
            exchange.pointee.take(String(decoding: line, as: UTF8.self))
        }
        parameters.is_cancelled = { context in
            guard let exchange = context?.assumingMemoryBound(to: Exchange.self) else { return 1 }
            return exchange.pointee.shouldEnd() ? 1 : 0
        }
    }
}

extension UpstreamConnection.Exchange {
    /// Whether the request must end now. libcurl asks from time to time.
    mutating func shouldEnd() -> Bool {
        gaveUp = shouldGiveUp(receivedAt)
        return gaveUp || cancellation.isCancelled
    }

    /// Checks whether the response comes from the upstream. Called when the header is complete; checks only once.
    ///
    /// - Returns: whether the response comes from the upstream.
    @discardableResult
    mutating func checkOrigin() -> Bool {
        if origin == nil {
            // Copied, because the closure must not capture `self`, which is inout.
            let exchange = self
            origin = Result { () throws(UpstreamError) in
                try exchange.identity.check(exchange.fields, status: exchange.status, sentAt: exchange.sentAt)
            }
        }
        if case .failure = origin { return false }
        return true
    }

    /// Parses a line of the header. A status line begins a new response, for example after `100 Continue`.
    mutating func take(_ line: String) {
        if line.hasPrefix("HTTP/") {
            let words = line.split(separator: " ")
            status = words.count > 1 ? Int(words[1]) ?? 0 : 0
            fields = []
            return
        }
        guard let colon = line.firstIndex(of: ":") else { return }
        let value = line[line.index(after: colon)...].drop { $0 == " " }
        let end = value.lastIndex { !$0.isWhitespace }.map { value.index(after: $0) } ?? value.startIndex
        fields.append((line[..<colon].lowercased(), String(value[..<end])))
    }
}

extension [UInt8] {
    /// Removes the complete lines at the beginning, and passes them to a function.
    ///
    /// - Parameter line: receives a line without its line feed, and returns whether to continue.
    /// - Returns: the last result of `line`; `true` if there was no line.
    /// - Throws: the error of `line`, which ends the iteration.
    mutating func takeLines<Failure: Error>(
        _ line: (UnsafeRawBufferPointer) throws(Failure) -> Bool
    ) throws(Failure) -> Bool {
        var taken = 0
        var goesOn = true
        var failure: Failure?
        withUnsafeBytes { bytes in
            while goesOn, taken < bytes.count, let base = bytes.baseAddress,
                let end = memchr(base + taken, 0x0A, bytes.count - taken)
            {
                let next = UnsafeRawPointer(end) - base
                do throws(Failure) {
                    goesOn = try line(UnsafeRawBufferPointer(rebasing: bytes[taken..<next]))
                } catch {
                    failure = error
                    goesOn = false
                }
                taken = next + 1
            }
        }
        removeFirst(taken)
        if let failure { throw failure }
        return goesOn
    }
}
