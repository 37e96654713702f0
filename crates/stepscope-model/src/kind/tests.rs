//! Kinds of real names, taken from real traces.

use super::*;

fn check(category: &str, track: TrackKind, expected: &[(&str, SliceKind)]) {
    for (name, kind) in expected {
        let found = SliceKind::from_name(name, category, track);
        assert_eq!(found, *kind, "{category:?} {track:?} {name:?}");
    }
}

#[test]
fn kernels_of_torch() {
    let expected = [
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            SliceKind::Collective,
        ),
        (
            "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4> >",
            SliceKind::Attention,
        ),
        (
            "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)",
            SliceKind::Attention,
        ),
        (
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
            SliceKind::MatMul,
        ),
        (
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x1",
            SliceKind::MatMul,
        ),
        ("ampere_sgemm_32x32_sliced1x4_tn", SliceKind::MatMul),
        (
            "void fbgemm_gpu::permute_2D_lengths_kernel<int>(int, int, int const*, int const*, int*)",
            SliceKind::Copy,
        ),
        ("fbgemm_gpu::f8f8bf16_gemm_kernel", SliceKind::MatMul),
        (
            "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
            SliceKind::MatMul,
        ),
        (
            "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)",
            SliceKind::MatMul,
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >",
            SliceKind::Elementwise,
        ),
        (
            "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float> >",
            SliceKind::Elementwise,
        ),
        (
            "void cub::DeviceScanKernel<cub::DeviceScanPolicy<int>::Policy600, int*>",
            SliceKind::Elementwise,
        ),
        (
            "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512>",
            SliceKind::Elementwise,
        ),
        (
            "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>",
            SliceKind::Copy,
        ),
        (
            "void nchwToNhwcKernel<float, float, float, true, false>",
            SliceKind::Copy,
        ),
        (
            "triton_poi_fused_add_native_layer_norm_3",
            SliceKind::Fusion,
        ),
        ("__missing__", SliceKind::Other),
    ];
    check("kernel", TrackKind::DeviceQueue, &expected);
    check("Kernel", TrackKind::DeviceQueue, &expected);
}

#[test]
fn the_rest_of_torch() {
    check(
        "Memcpy",
        TrackKind::DeviceQueue,
        &[("Memcpy HtoD (Pageable -> Device)", SliceKind::Copy)],
    );
    check(
        "gpu_memset",
        TrackKind::DeviceQueue,
        &[("Memset (Device)", SliceKind::Copy)],
    );
    check(
        "cuda_runtime",
        TrackKind::Thread,
        &[
            ("cudaLaunchKernel", SliceKind::Runtime),
            ("cudaMemcpyAsync", SliceKind::Runtime),
            ("cudaDeviceSynchronize", SliceKind::Wait),
            ("hipExtModuleLaunchKernel", SliceKind::Runtime),
        ],
    );
    check(
        "Runtime",
        TrackKind::Thread,
        &[("cudaStreamSynchronize", SliceKind::Wait)],
    );
    check(
        "cuda_sync",
        TrackKind::DeviceQueue,
        &[("Stream Wait Event", SliceKind::Wait)],
    );
    check(
        "python_function",
        TrackKind::Thread,
        &[
            (
                "torch/nn/modules/module.py(1779): _call_impl",
                SliceKind::Host,
            ),
            ("<built-in function linear>", SliceKind::Host),
        ],
    );
    check(
        "user_annotation",
        TrackKind::Thread,
        &[
            ("ProfilerStep#6", SliceKind::UserLabel),
            ("## backward ##", SliceKind::UserLabel),
            ("DistributedDataParallel.forward", SliceKind::UserLabel),
            ("nccl:all_reduce", SliceKind::Collective),
            (
                "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                SliceKind::Input,
            ),
        ],
    );
    check(
        "Operator",
        TrackKind::Thread,
        &[("Optimizer.step#SGD.step", SliceKind::UserLabel)],
    );
    check(
        "cpu_op",
        TrackKind::Thread,
        &[
            ("aten::addmm", SliceKind::MatMul),
            ("aten::mm", SliceKind::MatMul),
            ("aten::linear", SliceKind::MatMul),
            ("aten::cudnn_convolution", SliceKind::MatMul),
            (
                "aten::_scaled_dot_product_flash_attention",
                SliceKind::Attention,
            ),
            ("aten::copy_", SliceKind::Copy),
            ("aten::add_", SliceKind::Elementwise),
            ("aten::threshold_backward", SliceKind::Elementwise),
            ("aten::zeros_like", SliceKind::Elementwise),
            ("aten::_foreach_mul_", SliceKind::Elementwise),
            ("aten::stack", SliceKind::Copy),
            ("aten::is_floating_point", SliceKind::Host),
            ("aten::native_layer_norm", SliceKind::Elementwise),
            ("aten::empty_strided", SliceKind::Host),
            ("aten::view", SliceKind::Host),
            ("c10d::allreduce_", SliceKind::Collective),
            (
                "autograd::engine::evaluate_function: AddmmBackward0",
                SliceKind::MatMul,
            ),
        ],
    );
    check(
        "mtia_ccp_events",
        TrackKind::DeviceQueue,
        &[
            ("event_wait", SliceKind::Wait),
            ("dma_request", SliceKind::Copy),
        ],
    );
}

#[test]
fn instructions_of_xla() {
    check(
        "",
        TrackKind::DeviceQueue,
        &[
            (
                "%copy-start.4 = (f32[5,1024,1024,256]{3,2,1,0:T(8,128)}, f32[5])",
                SliceKind::Copy,
            ),
            (
                "%broadcast_add_fusion.1 = f32[5,1024,1024,256]{3,2,1,0:T(8,128)} fusion(",
                SliceKind::Fusion,
            ),
            (
                "%all-reduce = f32[5,1024]{1,0} all-reduce(f32[5,1024] %x)",
                SliceKind::Collective,
            ),
            ("fusion.12", SliceKind::Fusion),
            ("convolution.3", SliceKind::MatMul),
            ("dot.123", SliceKind::MatMul),
            ("gemm_fusion_dot_general_1.kd", SliceKind::MatMul),
            ("loop_reduce_fusion_3.kd", SliceKind::Fusion),
            (
                "void ck_tile::kentry<ck_tile::gfx950_t, 2, ck_tile::FmhaFwdKernel>",
                SliceKind::Attention,
            ),
            ("__amd_rocclr_fillBufferAligned.kd", SliceKind::Copy),
            ("MemcpyD2H", SliceKind::Copy),
            ("barrier-cores", SliceKind::Wait),
            ("dependency-wait", SliceKind::Wait),
            ("while.7", SliceKind::Other),
            ("infeed.1", SliceKind::Input),
        ],
    );
    check("", TrackKind::Steps, &[("12", SliceKind::UserLabel)]);
    check(
        "",
        TrackKind::Thread,
        &[
            ("dot.1", SliceKind::MatMul),
            ("end: dot", SliceKind::MatMul),
            ("multiply_subtract_fusion.1", SliceKind::Fusion),
            ("wrapped_reduce", SliceKind::Elementwise),
            ("reduce-window.1", SliceKind::Elementwise),
        ],
    );
}

#[test]
fn host_threads_of_jax_and_xla() {
    check(
        "",
        TrackKind::Thread,
        &[
            ("$pjit.py:250 cache_miss", SliceKind::Host),
            ("PjitFunction(train_step)", SliceKind::Runtime),
            (
                "CommonPjRtLoadedExecutable::ExecutePrepare",
                SliceKind::Runtime,
            ),
            ("TfrtCpuExecutable::Execute", SliceKind::Runtime),
            (
                "ThunkExecutor::Execute (wait for completion)",
                SliceKind::Wait,
            ),
            ("Wait for donation holds", SliceKind::Wait),
            ("backend_compile_and_load", SliceKind::Compile),
            ("lower_sharding_computation", SliceKind::Compile),
            ("FusionCompiler::Compile", SliceKind::Compile),
            ("mlir::detail::OpToOpPassAdaptor", SliceKind::Compile),
            ("HLO passes through layout assignment", SliceKind::Compile),
            ("DevicePut", SliceKind::Copy),
            ("tpu::System::TransferFromDevice", SliceKind::Copy),
            ("PCIe/Memcpy Dispatch", SliceKind::Copy),
            ("ScheduleWork", SliceKind::Runtime),
            ("StepMarker", SliceKind::UserLabel),
            ("train", SliceKind::UserLabel),
            ("data_prep", SliceKind::UserLabel),
            ("train_step_loss_and_backward", SliceKind::UserLabel),
            ("optimizer_step", SliceKind::UserLabel),
            ("Iterator::Prefetch", SliceKind::Input),
            ("PythonRefManager::CollectGarbage", SliceKind::Host),
            ("", SliceKind::Host),
        ],
    );
}

#[test]
fn ten_megabytes_of_name_are_cut() {
    let name = "ä".repeat(5 << 20) + "gemm";
    let kind = SliceKind::from_name(&name, "kernel", TrackKind::DeviceQueue);
    assert_eq!(kind, SliceKind::Other);
}
