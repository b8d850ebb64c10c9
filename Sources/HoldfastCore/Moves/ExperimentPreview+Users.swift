public import Bucketing
public import Definitions
import Storage

extension ExperimentPreview {
    /// The numbers of users with an assignment, by what the change would do to them.
    public struct Enrolled: Sendable, Equatable {
        /// All users who have an assignment of the experiment.
        public var users = 0
        /// Users who would keep their variation. Users without a variation before and after the change count, too.
        public var keep = 0
        /// Users who would get another variation.
        public var change = 0
        /// Users who have a variation now, and would have none.
        public var lose = 0
        /// Users who have no variation now, and would have one.
        public var gain = 0

        public init() {}
    }

    /// Counts a user, if the profile has an assignment of the experiment.
    ///
    /// A user whose variation is gone is bucketed again. The count assumes that the audience admits the user, and that
    /// the bucketing id is the user id, because both are known only to the app.
    ///
    /// - Parameter stored: the stored data of the user, which the change does not touch.
    public func count(_ userID: Identifier, _ stored: StickyAssignments, in enrolled: inout Enrolled) {
        guard stored.profile?[edited.id] != nil else { return }
        enrolled.users += 1
        let now = variation(of: userID, stored, in: former, of: formerDatafile)
        let next = variation(of: userID, stored, in: edited, of: editedDatafile)
        if now == next {
            enrolled.keep += 1
        } else if now == nil {
            enrolled.gain += 1
        } else if next == nil {
            enrolled.lose += 1
        } else {
            enrolled.change += 1
        }
    }

    /// Returns the id of the variation that a user has in an experiment; `nil` for none.
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
