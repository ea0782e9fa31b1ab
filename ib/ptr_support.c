/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/cuda.h"
#include "ib/mr.h"
#include "ib/pci.h"
#include "ib/verbs.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	TRIAL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
};

/* A kernel module that lets HCAs register GPU memory by address is loaded. */
static bool peermem_loaded(void)
{
	static const char *const files[] = {
		PCI_SYSFS_ROOT "/module/nvidia_peermem/version",
		PCI_SYSFS_ROOT "/kernel/mm/memory_peers/nv_mem/version",
		PCI_SYSFS_ROOT "/kernel/mm/memory_peers/nv_mem_nc/version",
	};

	for (unsigned int i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (access(files[i], F_OK) == 0) {
			return true;
		}
	}
	return false;
}

/* The driver has the call: it finds fault with the descriptor, not with being asked. */
static bool dmabuf_known(const struct ib_device *device)
{
	const struct ib_dmabuf nothing = {.fd = -1};
	struct ibv_mr *mr = NULL;
	int rc = ib_verbs_reg_dmabuf(device->pd, &nothing, 0, &mr);

	if (rc == 0) {
		(void)ib_verbs_dereg_mr(mr);
	}
	return rc != -EOPNOTSUPP && rc != -EPROTONOSUPPORT && rc != 0;
}

static bool try_peermem(const struct ib_device *device, const struct cuda_trial *trial)
{
	struct ibv_mr *mr;

	if (ib_verbs_reg_mr(device->pd, (void *)(uintptr_t)trial->addr, trial->len_bytes,
			    TRIAL_ACCESS, &mr) != 0) {
		return false;
	}
	return ib_verbs_dereg_mr(mr) == 0;
}

static bool try_dmabuf(const struct ib_device *device, const struct cuda_trial *trial)
{
	const struct ib_dmabuf buf = {
		.iova = trial->addr, .len_bytes = trial->len_bytes, .fd = trial->dmabuf_fd};
	struct ibv_mr *mr;

	if (trial->dmabuf_fd < 0 || ib_verbs_reg_dmabuf(device->pd, &buf, TRIAL_ACCESS, &mr) != 0) {
		return false;
	}
	return ib_verbs_dereg_mr(mr) == 0;
}

/* What may work on a rail, before GPU memory was tried. */
static int candidates(const struct ib_device *device, bool peermem)
{
	return IB_PTR_HOST | (peermem ? IB_PTR_CUDA : 0) |
	       (dmabuf_known(device) ? IB_PTR_DMABUF : 0);
}

static void keep(struct ib_rail *rail, int bits)
{
	/* relaxed: a number by itself; every thread that tries finds the same */
	atomic_store_explicit(&rail->ptr_support, bits, memory_order_relaxed);
	LOG_INFO("rail %s: memory it can reach: host%s%s", rail->label,
		 (bits & IB_PTR_CUDA) != 0 ? ", GPU (peer memory)" : "",
		 (bits & IB_PTR_DMABUF) != 0 ? ", GPU (DMA-BUF)" : "");
}

static int try_rail(const struct ib_rail *rail, const struct ib_device *device, int bits,
		    const struct cuda_trial *trial)
{
	if ((bits & IB_PTR_CUDA) != 0 && !try_peermem(device, trial)) {
		LOG_INFO("rail %s: a peer memory module is loaded, but registering GPU memory "
			 "fails",
			 rail->label);
		bits &= ~IB_PTR_CUDA;
	}
	if ((bits & IB_PTR_DMABUF) != 0 && !try_dmabuf(device, trial)) {
		LOG_INFO("rail %s: the driver knows DMA-BUF, but registering one of GPU memory "
			 "fails",
			 rail->label);
		bits &= ~IB_PTR_DMABUF;
	}
	return bits;
}

/* Rails that were tried before keep what was found. */
static int known(const struct ib_rails *rails, bool *all)
{
	int bits = IB_PTR_HOST;

	*all = true;
	for (unsigned int i = 0; i < rails->count; i++) {
		int one = atomic_load_explicit(&rails->rails[i].ptr_support, memory_order_relaxed);

		*all = *all && one != 0;
		bits |= one;
	}
	return bits;
}

/* Of one rail; *trial_rc is -EALREADY until GPU memory was asked for. */
static void try_support(struct ib_rail *rail, bool peermem, struct cuda_trial *trial, int *trial_rc)
{
	struct ib_device *device = ib_rail_device_get(rail);
	int wanted;

	/* a context whose device has failed is not touched again */
	if (!ib_device_is_used(device)) {
		goto put_device;
	}
	wanted = candidates(device, peermem);
	if (wanted == IB_PTR_HOST) {
		keep(rail, wanted);
		goto put_device;
	}
	if (*trial_rc == -EALREADY) {
		*trial_rc = ib_cuda_trial_begin(trial);
	}
	if (*trial_rc == 0) {
		keep(rail, try_rail(rail, device, wanted, trial));
	}
put_device:
	ib_device_put(device);
}

int ib_mr_ptr_support(struct ib_rails *rails)
{
	struct cuda_trial trial;
	bool all, peermem;
	int bits = known(rails, &all);
	int trial_rc = -EALREADY; /* not begun yet */

	if (all) {
		return bits;
	}
	peermem = peermem_loaded();
	for (unsigned int i = 0; i < rails->count; i++) {
		try_support(&rails->rails[i], peermem, &trial, &trial_rc);
	}
	if (trial_rc == 0) {
		ib_cuda_trial_end(&trial);
	} else if (trial_rc != -EALREADY) {
		LOG_INFO("GPU memory is not used yet: %s",
			 trial_rc == -EIO ? "CUDA gave none to try with"
					  : "no active CUDA context to try it in");
	}
	return known(rails, &all);
}
