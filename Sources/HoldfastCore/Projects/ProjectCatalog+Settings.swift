import Bucketing
import JSON
import Logging
public import Storage

// Changes of the catalog that are not changes of definitions: projects and their settings, and the generation of the
// store.

extension ProjectCatalog {
    /// Creates a project with an empty datafile, or changes its settings; see ``ProjectRules``. Returns once this
    /// catalog has the change.
    public func putProject(
        _ change: ProjectSettings, approval: Approval? = nil, by author: Author
    ) async throws(StorageError) -> ProjectSettingsResult {
        let empty = Datafile.empty(projectID: change.sdkKey, sdkKey: change.sdkKey).encoded()
        let result = try await definitions.run { session throws(StorageError) in
            try await session.write(.putProject(change, datafile: empty, approval: approval, by: author))
        }
        try await refresh()
        return result
    }

    /// Deletes a project with an empty datafile. Returns once this catalog has the change.
    public func removeProject(
        _ project: Project, by author: Author
    ) async throws(StorageError) -> ProjectRemovalResult {
        let result = try await definitions.run { session throws(StorageError) in
            try await session.write(.removeProject(sdkKey: project.sdkKey, expecting: project.version, by: author))
        }
        try await refresh()
        return result
    }

    /// Checks whether an epoch that an edge presents belongs to the current generation of the store.
    ///
    /// An edge copies the changes of this store, and presents the epoch that it follows. If it has seen something that
    /// the store lacks, the store has gone back in time, for example because a backup was restored. The store then gets
    /// a new generation, so that all edges copy everything again.
    ///
    /// - Parameter isAhead: whether the edge has seen a change or a datafile of this epoch that the store does not
    ///   have.
    /// - Returns: false if the edge must copy everything again.
    public func isPresent(_ epoch: Int64, isAhead: Bool, by author: Author) async throws(StorageError) -> Bool {
        if epoch == snapshot().generation.epoch, !isAhead { return true }
        // Another process may have renewed the generation.
        try await refresh()
        let current = snapshot()
        guard epoch != current.generation.epoch || isAhead else { return true }
        // If the epoch is a former one, the generation has been renewed already since the edge last asked.
        guard current.generation.epoch != 0, !current.formerEpochs.contains(epoch) else { return false }
        logger.warning(
            "an edge has seen what this database lacks: the database has gone back in time, so that all edges copy it anew",
            metadata: ["edge": "\(author.name)", "generation": "\(current.generation.text)"])
        let presented = epoch == current.generation.epoch ? 0 : epoch
        try await definitions.run { session throws(StorageError) in
            try await session.write(.renewGeneration(current.generation, presented: presented, by: author))
        }
        try await refresh()
        return false
    }
}
