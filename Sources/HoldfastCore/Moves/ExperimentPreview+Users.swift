public import Bucketing
public import Definitions
import Storage

extension ExperimentPreview {
    /// What would become of the users who have an assignment.
    public struct Enrolled: Sendable, Equatable {
        public var users = 0
        public var keep = 0
        /// Get another variation.
        public var change = 0
        /// Have a variation now, and would have none.
        public var lose = 0
        /// Have none now, and would have one.
        public var gain = 0

        public init() {}
    }

    /// Counts a user, if the profile has an assignment of the experiment.
    ///
    /// Users whose variation is gone are bucketed, as if the audience admitted them and their bucketing id were the user
    /// id.
    ///
    /// - Parameter stored: the user's data before and after the change.
    public func count(_ userID: Identifier, _ stored: StickyAssignments, in enrolled: inout Enrolled) {
        guard stored.profile?[edited.id] != nil else { return }
        enrolled.users += 1
        switch (
            variation(of: userID, stored, in: former, of: formerDatafile),
            variation(of: userID, stored, in: edited, of: editedDatafile)
        ) {
        case (nil, _?): enrolled.gain += 1
        case (_?, nil): enrolled.lose += 1
        case (let now, let next): if now == next { enrolled.keep += 1 } else { enrolled.change += 1 }
        }
    }

    private func variation(
        of userID: Identifier, _ stored: StickyAssignments, in experiment: Experiment?, of datafile: Datafile?
    ) -> Identifier? {
        guard let datafile, let experiment, experiment.isRunning else { return nil }
        let decisions = DecisionService(datafile: datafile)
        return
            (decisions.heldVariation(of: experiment, for: userID, stored: stored)?.variation
            ?? decisions.bucketedVariation(of: experiment, for: userID))?.id
    }
}
