import Bucketing
import Storage

/// The `tracked_series` table, and the version of the whole table, which is in `project_state`.
enum SeriesRows {
    /// Selects all series that are not dropped, each with the version. If there are no series, selects one row with
    /// only the version.
    static let tracked = Statement(
        "tracked_series",
        """
        SELECT \(StoredTable.trackedSeries.columnList), newest_series FROM project_state
        LEFT JOIN tracked_series ON state <> \(TrackedSeries.State.dropped.rawValue) ORDER BY number
        """)
    /// Fails with ``PostgreSQLError/versionConflict`` if the version is another one, because series have changed.
    static let expect = Statement(
        "expect_series", "SELECT 1 / (newest_series = $1)::integer FROM project_state")
    /// Raises the version.
    static let raise = Statement("raise_series", "UPDATE project_state SET newest_series = newest_series + 1")
    /// Notes that goal events from before a time were deleted.
    static let noteDeletedEvents = Statement(
        "note_deleted_events", "UPDATE project_state SET events_since = $1 WHERE events_since < $1")

    /// Decodes the rows of ``tracked``.
    static func decode(_ rows: Rows) -> VersionedSeries {
        VersionedSeries(
            version: rows.first?.integer(7) ?? 0,
            byExperiment: Dictionary(grouping: rows.compactMap { TrackedSeries($0) }, by: \.experimentID))
    }
}

/// The series of all experiments at one moment.
struct VersionedSeries: Sendable {
    let version: Int64
    let byExperiment: [Identifier: [TrackedSeries]]
}
