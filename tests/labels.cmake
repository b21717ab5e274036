# Which test cases are not of the everyday set (scripts/test), as patterns of GoogleTest's filters.

# Costly: they take longer than ten seconds each. The everyday set runs smaller cases of the same kinds.
set(costly
    */StandardModels.* */StandardModelsOnGpu.*
    Compiled.DigitsInBf16HaveTheSameTopClass Cli.AllModesReadTheSameDigits */SceneScores.*/eager
    Tune.TheOtherProgramsDoToo Tune.MeasuresThenRunsTheTunedModel Tune.EndsWhenItsGoalIsReached
    Tuning.NothingIsLostWhenItIsKilled Tuning.LeavesOutFusionsThatSlowTheWholeModelDown
    Tuning.ChoosesTheEstimatedFusionWhereTheWholeModelIsFasterByIt Kill.AtAnyMomentCostsOneLine
    TuneOnGpu.MeasuresInAChildAndPlansFromItsLog
    Tuning.EndsWithNoSlowerFusionThanItBeganWith Hints.AnotherGpusLogIsOne
    RunOnDevice.EveryTypeOfNumbersAgreesWithTheEagerRun
    CpuTuning.MeasuresEveryWayAndUsesTheBest LearnedModel.ALoadedModelIsAGoodStart
    LogTest.LosesOnlyTheLineBeingWrittenWhenKilled)

# Long: nearly all of it where the sanitizers would see nothing. They compile GPU kernels by NVRTC,
# run many of them on the emulated GPU, which checks each access itself, fuse, estimate or verify what others run, or do
# more of what others do; one has 64 processes.
set(long
    *CompilesWithoutSpills* *CompileWithoutSpills* *CompilesForTheGpu* *CompileForTheGpu* *CompilesForHopper* *CompileForHopper*
    *WhatTheModelLikesCompiles* *CompileForEveryArchitecture* *HoldsWhatLevelZeroTakes*
    GemmSm90.IsRight GemmSm90.SumsRows GemmSm90.NormalizesRows GemmSm90.TakesAnyShapesAndLayouts
    Space.SchedulesAtRandomAreRight Space.SizesForViT SpaceMma.SchedulesAtRandomAreRight
    Conv.IsRight Conv.IsRightAtOddSizes Conv.WeightsMayBeOperands AttentionSm90.IsRight
    SoftmaxMma.IsRight SoftmaxMma.SchedulesAtRandomAreRight SoftmaxMma.PlansWithItAreRight
    GeneratedKernels.AgreeWithTheReference GeneratedKernels.TakeAnyLayout PlanOnEmulator.Transformer
    LongRows.TakeAnyLayout GemmSm90.AddsWhatComesAsBoxes Conv.EveryTileOfHopperIsRight Conv.LayoutsDoNotMatter
    GemmTf32.FactorsLieInAnyWay GemmTf32.EveryScheduleIsRight GemmPlain.FactorsLieInAnyWay AttentionMma.TakesAnyLayout
    AttentionPlain.TakesMasksAndBiases AttentionPlain.EveryScheduleOfASmallProblemIsRight
    */EmulatedModels.*detr* */EmulatedModels.*depth* */EmulatedModels.*sam* ProgramsOnGpu.RtDetrChoosesPairs
    DividedProducts.ComputeEveryReferenceCheckpoint ProductsOnTwoGpus.OfTheDigitsViTNameTheSameDigits
    ManySizes.* OneText.* Fuse.WorkIsLinearInGraphsOfAnyShape SchedulesOfOtherSizes.AreRight
    KnownSchedules.ServeAllSizesAfterEight KnownSchedules.InHasteTakeWhatThereIs
    SoftmaxMma.TheNineModelsDoWithout */ShippedCoverage.* FitTimes.* TuneOnGpu.MeasuresWhereTheGpuWasUsedBefore
    Constants.ManyRandomFunctionsThatWriteAgreeWithTheEagerCall
    *VerifyFindsNothing/setr_mmseg_mla* *VerifyFindsNothing/setr_mmseg_pup* *SixtyFourProcesses*)

# Optimised: of the everyday set, but with as little for the sanitizers to see, or more of what other cases show them.
set(optimised
    Conv.DepthwiseIsRight Conv.GroupsRunOnTensorCores Conv.IsRightInTf32 AttentionMma.IsRight
    AttentionPlain.IsRight AttentionPlain.TakesAnyLayout GemmMma.EveryScheduleIsRight GemmMma.FactorsLieInAnyWay
    Tuning.EndsWhenItsGoalIsReached Tuning.ProblemsTakeTurnsWhenTheSchedulerIsOff
    Tuning.StartsFromWhatShips Tuning.MeasuresLevel0WhereTheLogHasTheBestOnly
    Tuning.TimesNoWholeModelWhenThatIsOff Tuning.TheSameLogMakesTheSamePlan
    Tuning.TheLogTellsWhatWasMeasuredAndFailuresAreNeverChosen Hints.TheOtherNarrowTypesLogIsOne
    Hints.TheLogOfOlderKernelsIsOne PlansOnHopper.AreThoseThatWereReviewed WholeModels.StandardModels
    LongRows.AgreeWithTheReference GemmPlain.EveryScheduleIsRight Golden.ComposedOperatorsCompiled
    GraphFuzz.EveryOperatorIsGenerated
    VitDigits.ReachesTheTrainingsAccuracy EightBitModels.* */SceneScores.*/eight_bits */SceneScores.*/static_scales
    KnownPlans.LittleIsLostOnHopper KnownSchedules.SameSizesInTheSameOrderRunAlike
    Search.TakesAThirdOfTheTrialsOfRandomSearch Fuse.EqualsExhaustiveSearchOnRandomGraphs Fuse.ManyBranchesArePlanned)

list(JOIN costly ":" costly)
list(JOIN long ":" long)
list(JOIN optimised ":" optimised)
set(TENSOR_everyday_CASES "*-${costly}:${long}:${optimised}")
set(TENSOR_rest_CASES "${costly}:${long}")
set(TENSOR_optimised_CASES "${optimised}")

# What runs groups on the emulated GPU, each kernel of which has two forms.
set(both_forms AttentionMma.* AttentionPlain.* Conv.* GemmMma.* GemmPlain.* GeneratedKernels.* LargeNumbers.* */LargeNumbers.* LongRows.*
    PlanOnEmulator.* SoftmaxMma.*)
list(JOIN both_forms ":" both_forms)
set(TENSOR_both_forms_CASES "${both_forms}-${costly}:${long}")
