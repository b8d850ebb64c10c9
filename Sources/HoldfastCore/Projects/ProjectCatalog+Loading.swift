import Bucketing
import Definitions
import JSON
import Logging
import Storage

/// A datafile from the command line that cannot be activated.
public struct DatafileLoadError: Error, CustomStringConvertible {
    public let description: String
    /// Whether the store has failed. Otherwise the datafile is invalid.
    public let isOfStore: Bool

    public init(_ description: String, isOfStore: Bool = false) {
        self.description = description
        self.isOfStore = isOfStore
    }
}

/// A datafile from the command line that is usable, with a summary of it.
public struct DatafileSummary: Sendable {
    let content: [UInt8]
    let datafile: Datafile

    public var sdkKey: String? { datafile.sdkKey }
    public var revision: String { datafile.revision }
    public var experiments: Int { datafile.experiments.count }
    public var flags: Int { datafile.flags.count }
    public var audiences: Int { datafile.audiences.count }
    /// See ``Bucketing/Datafile/warnings``.
    public var warnings: [String] { datafile.warnings }

    /// Reads a datafile as the server would.
    ///
    /// - Throws: ``DatafileLoadError`` with one line for each fault.
    public init(checking content: [UInt8]) throws(DatafileLoadError) {
        self.content = content
        do throws(CoreError) {
            datafile = try Datafile.accepted(content)
        } catch {
            let lines = error.faults.prefix(100).map { "\($0.pointer): \($0.reason)" }
            throw DatafileLoadError(lines.isEmpty ? error.detail : lines.joined(separator: "\n"))
        }
    }

    /// Returns the SDK key of the project to which the datafile belongs.
    ///
    /// - Parameter name: the SDK key if the datafile has none.
    /// - Throws: ``DatafileLoadError`` if it cannot be an SDK key.
    public func projectKey(otherwise name: String) throws(DatafileLoadError) -> String {
        do throws(CoreError) {
            return try SDKKey.check(sdkKey ?? name)
        } catch {
            throw DatafileLoadError(error.detail)
        }
    }
}

extension ProjectCatalog {
    /// Activates a datafile from the command line, and creates the project if it does not exist. Blocks until the
    /// datafile is stored and this catalog has it.
    ///
    /// Nothing changes if the last start activated the same datafile and another one was activated since. So a restart
    /// does not undo changes that were made over HTTP.
    ///
    /// - Parameters:
    ///   - sdkKey: the SDK key of the project, see ``DatafileSummary/projectKey(otherwise:)``.
    ///   - sharing: whether the datafile may have ids of other projects' experiments.
    /// - Throws: ``DatafileLoadError`` if other projects have ids of the datafile, or if the store fails.
    public func load(_ file: DatafileSummary, into sdkKey: String, sharing: SharePolicy) throws(DatafileLoadError) {
        let former = snapshot().projects[sdkKey]
        let completed = try Self.completed(file.content, file.datafile, with: former?.datafile.assignmentLifetime)
        if let former {
            if former.content == completed.content { return }
            if try isLastLoaded(file.content, file.datafile, sdkKey) {
                logger.warning(
                    "the datafile is the one activated last time, and another was activated since; the other stays active",
                    metadata: ["sdk_key": "\(sdkKey)", "revision": "\(former.datafile.revision)"])
                return
            }
        }
        // The store refuses the datafile if another server has stored one since the ids were checked, because that may
        // have the same ids. Then the check is repeated.
        while try !store(completed, sdkKey, sharing) {}
    }

    /// A datafile with its assignment lifetime.
    private typealias Completed = (content: [UInt8], compiled: CompiledDefinitions)

    /// Stores and activates a datafile, if its ids belong to no other project.
    ///
    /// - Returns: false if another server has stored a datafile meanwhile.
    private func store(
        _ completed: Completed, _ sdkKey: String, _ sharing: SharePolicy
    ) throws(DatafileLoadError) -> Bool {
        let datafile = completed.compiled.datafile
        let newest = try newest(for: datafile, sdkKey, sharing)
        do throws(StorageError) {
            let stored = try definitions.wait { session, done in
                session.write(
                    .putDatafile(
                        .whole(completed.content), sdkKey: sdkKey, revision: datafile.revision,
                        allocations: AllocationRules.allocations(in: datafile),
                        statuses: StatusRules.statuses(in: datafile), series: completed.compiled.definitions.series,
                        replacing: nil, among: newest, makesProject: true,
                        notes: [AuditNote(.datafilePut, of: sdkKey)], by: .processUser), done)
            }
            try updateAndWait()
            return stored != nil
        } catch {
            throw DatafileLoadError("it could not be stored: \(error)", isOfStore: error != .readOnly)
        }
    }

    /// Adds the project's assignment lifetime to a datafile that has none.
    private static func completed(
        _ content: [UInt8], _ datafile: Datafile, with lifetime: AssignmentLifetime?
    ) throws(DatafileLoadError) -> Completed {
        do throws(CoreError) {
            let compiled = CompiledDefinitions(datafile)
            return try compiled.completed(with: lifetime).map { ($0.definitions.content, $0) } ?? (content, compiled)
        } catch {
            throw DatafileLoadError(error.detail)
        }
    }

    /// Checks the ids of a datafile, and returns the version of the newest datafile of all projects; see
    /// ``Snapshot/checkIDs(of:replacing:in:_:)``.
    private func newest(
        for datafile: Datafile, _ sdkKey: String, _ sharing: SharePolicy
    ) throws(DatafileLoadError) -> Int64? {
        let snapshot = snapshot()
        do throws(CoreError) {
            return try snapshot.checkIDs(
                of: datafile, replacing: snapshot.projects[sdkKey]?.datafile, in: sdkKey, sharing)
        } catch {
            throw DatafileLoadError(
                error.detail.replacing("repeat the request with ?share=allow", with: "start with --share-ids"))
        }
    }

    /// Whether a datafile is the one that the command line activated last.
    private func isLastLoaded(
        _ content: [UInt8], _ datafile: Datafile, _ sdkKey: String
    ) throws(DatafileLoadError) -> Bool {
        guard let last = try lastLoaded(sdkKey)?.content else { return false }
        // The stored datafile has the assignment lifetime that the project had then.
        let lifetime = ProjectDefinitions.assignmentLifetime(in: last)
        return try last == Self.completed(content, datafile, with: lifetime).content
    }

    /// Reads the datafile that the command line activated last; `nil` if it has never activated one.
    private func lastLoaded(_ sdkKey: String) throws(DatafileLoadError) -> StoredDatafile? {
        do throws(StorageError) {
            return try updates.wait { session, done in
                session.read(.lastDatafile(sdkKey: sdkKey, by: .processUser), done)
            }
        } catch {
            throw DatafileLoadError("the stored datafile could not be read: \(error)", isOfStore: true)
        }
    }
}
