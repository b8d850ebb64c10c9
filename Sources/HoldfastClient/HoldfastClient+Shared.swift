/// The shared client of an app that has one user at a time.
extension HoldfastClient {
    private static let current = Locked<HoldfastClient?>(nil)

    /// Whether ``shared`` may be used.
    public static var isStarted: Bool { sharedIfStarted != nil }

    /// ``shared``, or `nil` if it may not be used.
    public static var sharedIfStarted: HoldfastClient? { current.withLock { $0 } }

    /// The client that ``start(configuration:user:transport:clock:)`` created.
    ///
    /// - Precondition: a client was started and not destroyed.
    public static var shared: HoldfastClient {
        guard let client = sharedIfStarted else {
            preconditionFailure("HoldfastClient.start or HoldfastClient.initialize must be called first")
        }
        return client
    }

    /// Creates the shared client and sets its user. When this returns, the flags that an earlier run has cached for the
    /// user can be read from ``shared``; the flags are fetched in the background.
    ///
    /// - Throws: ``HoldfastError/alreadyStarted`` and errors of ``init(configuration:transport:clock:)`` and
    ///   ``start(user:)``.
    @discardableResult
    public static func start(
        configuration: HoldfastConfiguration, user: HoldfastUser, transport: (any HoldfastTransport)? = nil,
        clock: any HoldfastClock = SystemClock()
    ) throws(HoldfastError) -> HoldfastClient {
        let client = try makeShared(configuration, user, transport, clock)
        client.fetchInBackground(replacing: true)
        return client
    }

    /// Creates the shared client, sets its user, and calls back on the main actor as soon as the flags are fetched or
    /// the time is over. An error means that there are only cached flags, or none; polling continues.
    ///
    /// - Throws: as ``start(configuration:user:transport:clock:)``.
    public static func initialize(
        configuration: HoldfastConfiguration, user: HoldfastUser, timeout: Duration = .seconds(5),
        transport: (any HoldfastTransport)? = nil, clock: any HoldfastClock = SystemClock(),
        completion: @escaping @MainActor @Sendable (HoldfastError?) -> Void
    ) throws(HoldfastError) {
        let client = try makeShared(configuration, user, transport, clock)
        Task {
            let error = await client.firstFetch(timeout)
            await completion(error)
        }
    }

    /// Creates the shared client, sets its user, and waits until the flags are fetched or the time is over. An
    /// unreachable server is no error of this call; see ``HoldfastClient/initialize(user:timeout:)``.
    ///
    /// - Throws: as ``start(configuration:user:transport:clock:)``.
    @discardableResult
    public static func initialize(
        configuration: HoldfastConfiguration, user: HoldfastUser, timeout: Duration = .seconds(5),
        transport: (any HoldfastTransport)? = nil, clock: any HoldfastClock = SystemClock()
    ) async throws(HoldfastError) -> Freshness {
        try await makeShared(configuration, user, transport, clock).freshness(timeout)
    }

    /// Creates the shared client and sets its user.
    private static func makeShared(
        _ configuration: HoldfastConfiguration, _ user: HoldfastUser, _ transport: (any HoldfastTransport)?,
        _ clock: any HoldfastClock
    ) throws(HoldfastError) -> HoldfastClient {
        guard !isStarted else { throw .alreadyStarted }
        let client = try HoldfastClient(configuration: configuration, transport: transport, clock: clock)
        try client.begin(user)
        // The client is not created inside the lock, because releasing a client takes the lock.
        let isShared = current.withLock { current in
            guard current == nil else { return false }
            current = client
            return true
        }
        guard isShared else { throw .alreadyStarted }
        return client
    }

    /// Ends ``shared`` if it is this client.
    func endShared() {
        // The client is released outside the lock, because its deinit calls this method.
        let former = Self.current.withLock { current -> HoldfastClient? in
            guard let client = current, client === self else { return nil }
            current = nil
            return client
        }
        withExtendedLifetime(former) {}
    }
}

// MARK: - Completion handlers

extension HoldfastClient {
    /// ``fetchEvaluations(timeout:)`` with a completion handler.
    public func fetchEvaluations(
        timeout: Duration = .seconds(30), completion: @escaping @MainActor @Sendable (HoldfastError?) -> Void
    ) {
        Task { [self] in
            do throws(HoldfastError) {
                try await fetchEvaluations(timeout: timeout)
                await completion(nil)
            } catch {
                await completion(error)
            }
        }
    }

    /// ``flush()`` with a completion handler.
    public func flush(completion: @escaping @MainActor @Sendable (HoldfastError?) -> Void) {
        Task { [self] in
            do throws(HoldfastError) {
                try await flush()
                await completion(nil)
            } catch {
                await completion(error)
            }
        }
    }
}
