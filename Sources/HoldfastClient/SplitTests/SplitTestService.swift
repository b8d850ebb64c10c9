/// Tells in which group of each split test a user is, and reports the exposure when the user meets the test.
///
/// ```swift
/// let tests = SplitTestService(
///     userID: "ann", assigner: HoldfastSplitTestAssigner(client: client),
///     storage: FileSplitTestStorage(file: directory.appending(path: "split-tests.json")),
///     exposures: HoldfastExposureReporter(client: client), analytics: analytics)
///
/// switch try await tests.hit(PaywallTest.self) {
/// case .annualFirst: showAnnualFirst()
/// case .control, .controlCheck, nil: showPaywall()
/// }
/// ```
///
/// A group once known is kept and answered without asking again, with and without a network, until ``refresh(_:)``.
/// Many callers at once get the same group, and cause one assignment and one exposure.
public actor SplitTestService {
    private typealias Outcome = Result<SplitTestRecord?, SplitTestError>

    private let userID: String
    private let assigner: any SplitTestAssigner
    private let storage: any SplitTestStorage
    private let exposures: (any ExposureReporter)?
    private let analytics: (any SplitTestAnalytics)?

    /// What is known of each test by its key; a known nil is a user who is not part of it.
    private var known: [String: SplitTestRecord?] = [:]
    /// The last piece of work begun for each test, so that the next waits for it.
    private var turns: [String: Task<Outcome, Never>] = [:]

    /// - Parameters:
    ///   - userID: the user whose groups these are.
    ///   - exposures: takes the exposures for Holdfast; nil for an app without a server.
    ///   - analytics: the app's own; nil for none.
    public init(
        userID: String, assigner: any SplitTestAssigner, storage: any SplitTestStorage,
        exposures: (any ExposureReporter)? = nil, analytics: (any SplitTestAnalytics)? = nil
    ) {
        self.userID = userID
        self.assigner = assigner
        self.storage = storage
        self.exposures = exposures
        self.analytics = analytics
    }

    /// The user's group, assigned if there is none yet. Reports nothing.
    /// - Returns: nil if the user is not part of the test; asked anew in the next run or by ``refresh(_:)``.
    /// - Throws: ``SplitTestError``
    public func group<Test: SplitTest>(of test: Test.Type) async throws(SplitTestError) -> Test.Group? {
        if let record = known[Test.key] { return record.flatMap(test.group(of:)) }
        let request = request(for: test)
        return try await inTurn(Test.key) { service throws(SplitTestError) in
            try await service.record(for: request)
        }.flatMap(test.group(of:))
    }

    /// The user's group, at the moment when the test shows: the first hit reports the exposure, to Holdfast and to the
    /// app's analytics, once for each user and assignment over all runs of the app.
    /// - Returns: nil if the user is not part of the test; nothing is reported then.
    /// - Throws: ``SplitTestError``. Never because of the exposure alone: see ``SplitTestAnalytics``.
    public func hit<Test: SplitTest>(_ test: Test.Type) async throws(SplitTestError) -> Test.Group? {
        if let record = known[Test.key], record?.isExposed ?? true { return record.flatMap(test.group(of:)) }
        let request = request(for: test)
        return try await inTurn(Test.key) { service throws(SplitTestError) in
            try await service.exposedRecord(for: request)
        }.flatMap(test.group(of:))
    }

    /// Asks the assigner again, for instance when the app starts, so that a group that was overridden at the server is
    /// seen. A user who is given another group is exposed again by the next hit.
    /// - Throws: ``SplitTestError``; the group stays what it was.
    @discardableResult
    public func refresh<Test: SplitTest>(_ test: Test.Type) async throws(SplitTestError) -> Test.Group? {
        let request = request(for: test)
        return try await inTurn(Test.key) { service throws(SplitTestError) in
            try await service.assignedRecord(for: request, kept: try await service.keptRecord(for: request))
        }.flatMap(test.group(of:))
    }

    private func request<Test: SplitTest>(for test: Test.Type) -> SplitTestRequest {
        SplitTestRequest(userID: userID, testKey: Test.key, groups: Test.Group.allCases.map(\.rawValue))
    }

    /// Runs a piece of work after all that was begun before it for the same test.
    private func inTurn(
        _ testKey: String,
        _ work: @escaping @Sendable (isolated SplitTestService) async throws(SplitTestError) -> SplitTestRecord?
    ) async throws(SplitTestError) -> SplitTestRecord? {
        let previous = turns[testKey]
        let turn = Task { () -> Outcome in
            _ = await previous?.value
            do throws(SplitTestError) {
                return .success(try await work(self))
            } catch {
                return .failure(error)
            }
        }
        turns[testKey] = turn
        let outcome = await turn.value
        if turns[testKey] == turn { turns[testKey] = nil }
        return try outcome.get()
    }

    // MARK: - In turn

    private func record(for request: SplitTestRequest) async throws(SplitTestError) -> SplitTestRecord? {
        if let record = known[request.testKey] { return record }
        if let kept = try await keptRecord(for: request) {
            known[request.testKey] = kept
            return kept
        }
        return try await assignedRecord(for: request, kept: nil)
    }

    private func exposedRecord(for request: SplitTestRequest) async throws(SplitTestError) -> SplitTestRecord? {
        guard var record = try await record(for: request), !record.isExposed else { return known[request.testKey] ?? nil }
        let exposure = SplitTestExposure(userID: userID, testKey: request.testKey, assignment: record.assignment)
        do throws(SplitTestError) {
            try await exposures?.report(exposure)
        } catch {
            await analytics?.exposureWasNotReported(exposure, error: error)
            return record
        }
        record.isExposed = true
        try await keep(record, for: request)
        await analytics?.userWasExposed(exposure)
        return record
    }

    private func assignedRecord(
        for request: SplitTestRequest, kept: SplitTestRecord?
    ) async throws(SplitTestError) -> SplitTestRecord? {
        var request = request
        request.kept = kept?.assignment
        let assignment = try await assigner.assignment(for: request)
        if let assignment, !request.groups.contains(assignment.variationKey) {
            throw .unknownGroup(testKey: request.testKey, variationKey: assignment.variationKey)
        }
        let isSame = assignment?.variationKey == kept?.assignment.variationKey
        let record = isSame ? kept : assignment.map(SplitTestRecord.init)
        if isSame { known[request.testKey] = .some(record) } else { try await keep(record, for: request) }
        return record
    }

    private func keptRecord(for request: SplitTestRequest) async throws(SplitTestError) -> SplitTestRecord? {
        let text: String?
        do {
            text = try await storage.value(forKey: request.storageKey)
        } catch {
            throw .storage(reason: "\(error)")
        }
        guard let record = text.flatMap(SplitTestRecord.init(text:)),
            request.groups.contains(record.assignment.variationKey)
        else { return nil }
        return record
    }

    private func keep(_ record: SplitTestRecord?, for request: SplitTestRequest) async throws(SplitTestError) {
        do {
            try await storage.set(try record?.text(), forKey: request.storageKey)
        } catch {
            throw .storage(reason: "\(error)")
        }
        known[request.testKey] = .some(record)
    }
}
