import HoldfastClient
import HoldfastOptimizely
import Optimizely

// The code of the article UserProfiles that needs the Optimizely SDK; ArticleTests compares the two.

final class ProfileService: HoldfastUserProfileService, OPTUserProfileService, @unchecked Sendable {}

func start(client: HoldfastClient, sdkKey: String) -> OptimizelyClient {
    let profiles = ProfileService(UserProfileService(client: client))
    let optimizely = OptimizelyClient(sdkKey: sdkKey, userProfileService: profiles)
    return optimizely
}
